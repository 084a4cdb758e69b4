"""Files of a node made like those that its programs write."""

from itertools import combinations

GPU = '<pci busid="{bus}" class="0x030200" vendor="0x10de" device="{device}" link_speed="{speed}" link_width="{lanes}">'
NIC = (
    '<pci busid="{bus}" class="0x020700" link_speed="{speed}" link_width="16"><nic><net name="{name}" dev="0" {rate}/>'
)


def node_xml(gpus=8, *, device="0x2330", sm="90", switch_links=18, mesh=0, nics=8, rate=400_000, **options):
    """Return a dump of NCCL: each GPU below a PCIe switch, beside an interface as long as there are any."""
    options = {"speed": "32.0 GT/s PCIe", "lanes": 16, "names": "mlx5_{}", "beside": True, "attribute": "sm"} | options
    bus = "0000:{:02x}:00.0".format
    lines = ['<?xml version="1.0"?>', "<!-- a comment -->", '<system version="1">']
    lines.append('<cpu host_hash="0x1" numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6">')
    later = []
    for number in range(max(gpus, nics)):
        bridge = f'<pci busid="{bus(64 + number)}" class="0x060400" link_speed="{options["speed"]}" link_width="16">'
        lines.append(bridge)
        if number < gpus:
            lines.append(GPU.format(bus=bus(number), device=device, **options))
            lines.append(f'<gpu dev="{number}" {options["attribute"]}="{sm}" rank="{number}" gdr="1">')
            if switch_links:
                lines.append(f'<nvlink target="{bus(200)}" count="{switch_links - 4}" tclass="0x068000"/>')
                lines.append(f'<nvlink target="{bus(201)}" count="4" tclass="0x068000"/>')
            others = [other for other in range(gpus) if other != number and mesh]
            lines += [f'<nvlink target="{bus(other)}" count="{mesh}" tclass="0x030200"/>' for other in others]
            lines.append("</gpu></pci>")
        if number < nics:
            own = NIC.format(
                bus=bus(128 + number), name=options["names"].format(number), rate=f'speed="{rate}"', **options
            )
            (lines if options["beside"] else later).append(f"{own}</nic></pci>")
        lines.append("</pci>")
    return "\n".join([*lines, *later, "</cpu>", "</system>", ""])


def node_matrix(gpus=8, links=18, nics=2, near="PIX"):
    """Return what ``nvidia-smi topo -m`` prints, titles underlined as on a terminal."""
    names = [*(f"GPU{number}" for number in range(gpus)), *(f"NIC{number}" for number in range(nics))]
    joined = set(combinations(names[:gpus], 2)) if links else set()

    def cell(one, other):
        if one == other:
            return " X "
        if (one, other) in joined or (other, one) in joined:
            return f"NV{links}"
        return near if {one, other} == {"GPU0", "NIC0"} else "SYS"

    rows = ["\t".join([one, *(cell(one, other) for other in names), "0-47", "0"]) for one in names]
    head = "\t".join(["", *(f"\x1b[4m{name}\x1b[0m" for name in names), "CPU Affinity", "NUMA Affinity"])
    legend = "".join(f"  NIC{number}: mlx5_{number}\n" for number in range(nics))
    return "\n".join([head, *rows, "", "Legend:", "", "  X    = Self", "", "NIC Legend:", "", legend])
