"""Programs of MSCCL as XML, each for any number of ranks: thread blocks as lists of steps, written out."""

from itertools import count


def xml(coll, chunks, blocks, *, scratch=0, inplace=True, ranks=None):
    """Return the XML of thread blocks ``(rank, send, receive, channel, steps)``.

    Steps are ``(type, (buffer, offset), (buffer, offset), chunks)``, and may have ``(thread block, step)`` to wait for.
    """
    ranks = ranks or 1 + max(block[0] for block in blocks)
    lines = [f'<algo name="test" nchunksperloop="{chunks}" nchannels="1" proto="Simple" ngpus="{ranks}"']
    lines[0] += f' coll="{coll}" inplace="{int(inplace)}">'
    for rank in range(ranks):
        lines.append(f'<gpu id="{rank}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{scratch}">')
        number = count()
        for _, send, receive, channel, steps in (block for block in blocks if block[0] == rank):
            lines.append(f'<tb id="{next(number)}" send="{send}" recv="{receive}" chan="{channel}">')
            for at, (kind, (src, srcoff), (dst, dstoff), cnt, *wait) in enumerate(steps):
                depid, deps = wait[0] if wait else (-1, -1)
                lines.append(
                    f'<step s="{at}" type="{kind}" srcbuf="{src}" srcoff="{srcoff}" dstbuf="{dst}" dstoff="{dstoff}" '
                    f'cnt="{cnt}" depid="{depid}" deps="{deps}" hasdep="0"/>'
                )
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


def ring(ranks, coll="allreduce"):
    """Return a ring, in place: each rank's block sends to the next rank, and receives from the one before."""
    blocks = []
    for rank in range(ranks):
        at = [(rank - step) % ranks for step in range(ranks)]
        if coll == "allgather":
            steps = [("s", ("o", rank), ("o", rank), 1)]
            steps += [("rcs", ("o", chunk), ("o", chunk), 1) for chunk in at[1:-1]]
            steps.append(("r", ("o", at[-1]), ("o", at[-1]), 1))
        else:
            # Chunk i is whole at rank i, or there on its way round again.
            at = [(rank - 1 - step) % ranks for step in range(ranks)]
            steps = [("s", ("i", at[0]), ("i", at[0]), 1)]
            steps += [("rrs", ("i", chunk), ("i", chunk), 1) for chunk in at[1:-1]]
            last = "rrc" if coll == "reduce_scatter" else "rrcs"
            steps.append((last, ("i", rank), ("i", rank), 1))
        if coll == "allreduce":
            steps += [("rcs", ("i", chunk), ("i", chunk), 1) for chunk in at[:-2]]
            steps.append(("r", ("i", at[-2]), ("i", at[-2]), 1))
        blocks.append((rank, (rank + 1) % ranks, (rank - 1) % ranks, 0, steps))
    return xml(coll, ranks, blocks)


def all_pairs(ranks):
    """Return an all-reduce in place: chunks go to their owner's scratch, are added there, and go to all."""
    blocks = []
    for rank in range(ranks):
        others = [other for other in range(ranks) if other != rank]
        # One block adds up what has come; the others wait for its last step before they send the sum.
        adds = [("nop", ("i", -1), ("o", -1), 0, (1 + at, 1)) for at in range(ranks - 1)]
        adds += [("re", ("s", at), ("i", rank), 1) for at in range(ranks - 1)]
        blocks.append((rank, -1, -1, 0, adds))
        for at, other in enumerate(others):
            steps = [("s", ("i", other), ("i", other), 1), ("r", ("s", 0), ("s", at), 1)]
            steps += [("s", ("i", rank), ("i", rank), 1, (0, len(adds) - 1)), ("r", ("i", other), ("i", other), 1)]
            blocks.append((rank, other, other, 0, steps))
    return xml("allreduce", ranks, blocks, scratch=ranks - 1)


def recursive_doubling(ranks):
    """Return an all-reduce in place of 2^k ranks: whole buffers are exchanged with partners 1, 2, 4, ... away."""
    blocks = []
    for rank in range(ranks):
        for bit in range((ranks - 1).bit_length()):
            partner = rank ^ (1 << bit)
            before = ((bit - 1, 2),) if bit else ()
            steps = [("s", ("i", 0), ("i", 0), 1, *before), ("r", ("s", bit), ("s", bit), 1)]
            blocks.append((rank, partner, partner, 0, [*steps, ("re", ("s", bit), ("i", 0), 1)]))
    return xml("allreduce", 1, blocks, scratch=(ranks - 1).bit_length())


def all_to_all(ranks):
    """Return an all-to-all out of place, one message between each two ranks."""
    blocks = []
    for rank in range(ranks):
        blocks.append((rank, -1, -1, 0, [("cpy", ("i", rank), ("o", rank), 1)]))
        for other in (other for other in range(ranks) if other != rank):
            steps = [("s", ("i", other), ("o", 0), 1), ("r", ("i", 0), ("o", other), 1)]
            blocks.append((rank, other, other, 0, steps))
    return xml("alltoall", ranks, blocks, inplace=False)
