"use strict";
// The question is what the controls say, and stands in the address; the server answers from its store, and computes a
// cell a request. Nothing is asked that is not looked at: a new question drops what is left of the old one.
(() => {
  const [form, status, answer, download] = ["question", "status", "answer", "download"].map((id) => document.getElementById(id));
  const sliders = [...form.querySelectorAll("input[type=range]")];
  let asked = 0;
  let dropped = new AbortController();

  const question = () => {
    const words = new URLSearchParams(new FormData(form));
    for (const slider of sliders) words.set(slider.dataset.name, JSON.parse(slider.dataset.texts)[slider.value]);
    return words;
  };
  const label = () => {
    for (const slider of sliders) {
      const text = JSON.parse(slider.dataset.texts)[slider.value];
      slider.previousElementSibling.querySelector("output").textContent = text;
      slider.setAttribute("aria-valuetext", text);
    }
  };
  const say = (text, error = false) => {
    status.textContent = text;
    status.classList.toggle("error", error);
  };
  const put = (found) => {
    if (found.html) answer.innerHTML = found.html;
    answer.classList.toggle("stale", !found.html);
    if (found.charts) window.showCharts(found.charts);
    download.toggleAttribute("aria-disabled", !found.html);
  };

  const ask = async () => {
    const mine = ++asked;
    dropped.abort();
    dropped = new AbortController();
    const { signal } = dropped;
    const began = performance.now();
    const words = question();
    label();
    history.replaceState(null, "", `?${words}`);
    download.href = `report.html?${words}`;
    const reply = async (path) => (await fetch(`${path}?${words}`, { signal })).json();
    try {
      let found = await reply("answer");
      while (mine === asked) {
        put(found);
        if (found.error) return say(found.error, true);
        const of = found.known + found.missing;
        if (found.html && !found.missing) return say(`Answered in ${((performance.now() - began) / 1000).toFixed(2)} s.`);
        const told = found.html ? `${found.known} of ${of} points of the chart` : `computing this cell${found.cost ? `, ${found.cost}` : ""}`;
        const clock = setInterval(() => mine === asked && say(`${told}; ${Math.round((performance.now() - began) / 1000)} s`), 1000);
        say(told);
        try {
          found = await reply("compute");
        } finally {
          clearInterval(clock);
        }
      }
    } catch {
      if (mine === asked) say("The server did not answer: look at its terminal, or start s2sim explore again.", true);
    }
  };
  let waiting;
  form.addEventListener("input", (event) => {
    label();
    clearTimeout(waiting);
    waiting = setTimeout(ask, event.target.tagName === "TEXTAREA" ? 600 : 30);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  ask();
})();
