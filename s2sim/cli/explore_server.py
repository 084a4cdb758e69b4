"""The server of ``s2sim explore``: it answers from a store, and a process beside it computes cells."""

import asyncio
import os
import secrets
import socket
import webbrowser
from collections.abc import Awaitable, Callable
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from s2sim.cli.output import show_lines
from s2sim.errors import S2SimError
from s2sim.experiment.costs import cost_of
from s2sim.report.explore_page import answer_parts, explorer_page, report_page
from s2sim.sweeps.compute import compute_jobs, job_features
from s2sim.sweeps.explore import Explorer
from s2sim.sweeps.study import Cell
from s2sim.sweeps.sweep import kill_pool, killed, shared_recordings, start_pool, submit

P = ParamSpec("P")
T = TypeVar("T")
Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
HOST = "127.0.0.1"
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
# What is asked of the chart, and not of the cell.
_OF_CHART = ("over", "show")


def listen(port: int | None) -> socket.socket:
    """Return a socket on a port of this machine alone, by default a free one."""
    try:
        return socket.create_server((HOST, port or 0))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise S2SimError(f"--port {port} cannot be used: {why}; leave it out for a free one") from None


def serve(explorer: Explorer, folder: Path, listening: socket.socket, *, headless: bool) -> None:
    """Serve the pages of an explorer, whose store is in a folder, until Ctrl-C."""
    token, port = secrets.token_urlsafe(16), listening.getsockname()[1]
    address = f"http://{HOST}:{port}/?token={token}"
    with closing(Pages(explorer, folder)) as pages, suppress(KeyboardInterrupt):
        options: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_level": "error"}
        app = pages.application(token, f"s2sim-{port}")
        server = uvicorn.Server(uvicorn.Config(app, **options, timeout_graceful_shutdown=1))
        show_lines([f"Serving {explorer.title} at {address}", "Ctrl-C ends it."])
        if not headless:
            webbrowser.open(address)
        server.run([listening])


class Pages:
    """What is served: the page, answers as JSON, and the report of an answer."""

    def __init__(self, explorer: Explorer, folder: Path) -> None:
        self._explorer, self._cache, self._busy = explorer, shared_recordings(folder), asyncio.Lock()
        self._pool = start_pool(1, self._cache)
        submit(self._pool, compute_jobs, [])  # The process starts while the browser opens.

    def close(self) -> None:
        """Kill the process that computes."""
        kill_pool(self._pool)

    def application(self, token: str, cookie: str) -> Starlette:
        """Return the ASGI application; it answers to the names of this machine, and to who knows the token.

        The token comes with the first address, and in a cookie from then on: addresses hold the question alone.
        """
        served: dict[str, Handler] = {"": self._page, "answer": self._answer, "compute": self._compute}
        served["report.html"] = self._report
        routes: list[BaseRoute] = [Route(f"/{path}", _guarded(each, token, cookie)) for path, each in served.items()]
        routes.append(Mount("/assets", StaticFiles(packages=[("s2sim.report", "page")])))
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"], www_redirect=False)
        return Starlette(routes=routes, middleware=[hosts])

    def _asked(self, request: Request) -> tuple[dict[str, str], Cell]:
        question = {name: text for name, text in request.query_params.items() if name not in _OF_CHART}
        return question, self._explorer.cell(question)

    async def _page(self, request: Request) -> Response:
        return HTMLResponse(explorer_page(self._explorer, request.query_params))

    async def _answer(self, request: Request) -> Response:
        question, cell = self._asked(request)
        found = answer_parts(self._explorer, question, *map(request.query_params.get, _OF_CHART))
        if "error" not in found and found["html"] is None:
            found["cost"] = cost_of(self._explorer.what, job_features(self._explorer.job(cell))).text()
        return JSONResponse(found)

    async def _compute(self, request: Request) -> Response:
        """Compute the cell of the question or, if it is known, the next one of the chart, if anybody still waits."""
        question, cell = self._asked(request)
        async with self._busy:
            over = self._explorer.over(request.query_params.get("over"))
            missing = self._explorer.missing(cell, question, over)
            if missing and not await request.is_disconnected():
                job = self._explorer.job(missing[0])
                try:
                    outcomes = await self._computed(compute_jobs, [job])
                except BrokenProcessPool:
                    outcomes = [killed(key) for key, _ in job.cells]
                self._explorer.store.add(outcomes)
        return await self._answer(request)

    async def _report(self, request: Request) -> Response:
        _, cell = self._asked(request)
        if cell.spec is None:
            raise S2SimError(str(cell.problem))
        command = self._explorer.command(cell)
        async with self._busy:
            try:
                made = await self._computed(report_page, cell.spec, command)
            except BrokenProcessPool:
                raise S2SimError(f"the process that computes was killed, maybe for its memory: run {command}") from None
        return HTMLResponse(made, headers={"Content-Disposition": 'attachment; filename="s2sim-answer.html"'})

    async def _computed(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return what a function returns in the process that computes; `BrokenProcessPool` if that is killed."""
        try:
            return await asyncio.wrap_future(submit(self._pool, function, *arguments, **named))
        except BrokenProcessPool:
            self._pool = start_pool(1, self._cache)
            raise


def _guarded(handler: Handler, token: str, cookie: str) -> Handler:
    """Return a handler for requests that know the token, with one line for errors."""

    async def handle(request: Request) -> Response:
        response: Response
        if secrets.compare_digest(request.query_params.get("token", "").encode(), token.encode()):
            response = RedirectResponse(str(request.url.remove_query_params("token")), 303)
            response.set_cookie(cookie, token, httponly=True, samesite="strict")
        elif not secrets.compare_digest(request.cookies.get(cookie, "").encode(), token.encode()):
            response = PlainTextResponse("Open the address that s2sim explore has printed: it has a token.", 403)
        else:
            try:
                response = await handler(request)
            except S2SimError as error:
                response = JSONResponse({"error": str(error)})
        response.headers.update(_HEADERS)
        return response

    return handle
