"""Logs in the forms that people keep, with figures made up."""

OF_TODAY = """\
$ mpirun -np 16 ./build/all_reduce_perf -b 1M -e 4M -f 2 -g 1
# nccl-tests version 2.17.2 nccl-headers=22705 nccl-library=22705
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid    101 on     node-a device  0 [0000:18:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid    102 on     node-a device  1 [0000:2a:00] NVIDIA H100 80GB HBM3
#  Rank 15 Group  0 Pid    108 on     node-b device  7 [0000:db:00] NVIDIA H100 80GB HBM3
NCCL version 2.27.5+cuda12.9
node-a:101:140 [0] NCCL INFO ncclCommInitRank comm 0x55 rank 0 nranks 16 cudaDev 0 busId 18000 - Init START
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    60.27   17.40   32.62       0    59.31   17.68   33.15       0
node-b:108:151 [7] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [send] via NET/IB/7/GDRDMA
     2097152        524288     float     sum      -1    82.00   25.57   47.95       0    81.02   25.88   48.53     N/A
     4194304       1048576     float     sum      -1    90330   46.43   87.06       0    91945   46.20   86.63       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 55.9900
#
# Collective test concluded: all_reduce_perf
#
"""

OF_2019 = """\
# nThread 1 nGpus 4 minBytes 8 maxBytes 32 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid  71327 on 51e6e7896958 device  0 [0x1a] Tesla V100-SXM3-32GB
#   Rank  1 Pid  71327 on 51e6e7896958 device  1 [0x1b] Tesla V100-SXM3-32GB
#   Rank  2 Pid  71327 on 51e6e7896958 device  2 [0x1c] Tesla V100-SXM3-32GB
#   Rank  3 Pid  71327 on 51e6e7896958 device  3 [0x1e] Tesla V100-SXM3-32GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2   float     sum    158.3    0.00    0.00  1e-07    158.4    0.00    0.00  0e+00
          16             4   float     sum    160.4    0.00    0.00  3e-08    160.7    0.00    0.00    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0
#
"""

GATHER_2019 = """\
#                                             out-of-place                       in-place
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        131072   float    47.38   22.13   11.06  0e+00    46.84   22.39   11.19  0e+00
"""

# The column is there, and tests without an operation leave it empty.
BLANK_OPERATION = """\
# Collective test starting: sendrecv_perf
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float              -1    90.00   11.65   11.65      0      N/A     N/A     N/A    N/A
"""

OF_RCCL = """\
freddy@host:~/rccl-tests$ ./build/alltoall_perf -b 1M -e 2M -f 2 -g 2
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
rccl-tests: Version develop:3f7f785
# Using devices
#   Rank  0 Pid  38629 on deep-visionscaper3 device  0 [0000:2f:00.0] AMD Instinct MI100
#   Rank  1 Pid  38629 on deep-visionscaper3 device  1 [0000:03:00.0] AMD Instinct MI100
RCCL version : 2.18.6-HEAD:2f6d59e
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        131072     float    none      -1    187.9    5.58    2.79      0    194.0    5.41    2.70    N/A
     2097152        262144     float    none      -1    351.9    5.96    2.98      0    362.2    5.79    2.89    N/A
# Errors with asterisks indicate errors that have exceeded the maximum threshold.
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 2.8400
"""

_PREFIXED = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576         65536     float    none      -1   107.50    9.75    9.14      0   105.60    9.93    9.31    N/A
# Avg bus bandwidth    : 9.2250
"""

LAUNCHERS = ("[1,0]<stdout>:", " 0: ", "2025-06-01T10:11:12.123456789Z ", "nccl-test-launcher-x7v | ", "\t    ", "> ")


def launched_by(prefix):
    return "".join(f"{prefix}{line}\n" for line in _PREFIXED.splitlines())


# Of the years between, numbers stand for names; the cut row is that of issue 1453 of NVIDIA/nccl.
CHOSEN = """\
[0] # Collective test starting: all_reduce_perf
[0] h100-1:4978:4978 [0] NCCL INFO 16 coll channels, 0 collnet channels, 16 nvls channels, 32 p2p channels
[0] #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
[0]       262144         65536     float     sum      -1h100-1:4978:4978 [0] NCCL INFO 262144 Bytes -> Algo 0 proto 1
[0] h100-1:4978:4978 [0] NCCL INFO 262144 Bytes -> Algo 0 proto 1 time 54.707825
[0]     281.5    0.93    1.79      0    280.0    0.94    1.80      0
[0] h100-1:4978:4978 [0] NCCL INFO AllReduce: 524288 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..15}
[0]       524288        131072     float     sum      -1    100.0    5.24   10.00      0    100.0    5.24   10.00      0
[0]      1048576        262144     float     sum      -1    120.0    8.74   17.00      0    120.0    8.74   17.00      0
"""

# As where standard output is a pipe and the first call connects the ranks.
CUT = """\
# Collective test starting: broadcast_perf
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float    none       0node-a:101:140 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P
node-a:101:140 [0] NCCL INFO comm 0x55 rank 0 nranks 2 - Connected all rings
   107.50    9.75    9.75      0   105.60    9.93    9.93      0
     2097152        524288     float    none       0   201.00   10.43   10.43      0   200.00   10.49   10.49      0
     4194304       1048576     float    none       0
"""

PER_ITERATION = """\
# Collective test starting: reduce_scatter_perf
#       size  count   type  redop  root  time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%  time  algbw  busbw  \
#wrong  i_min  i_max  i_p99  i_cv%           timestamp
  1048576  131072  float  sum  -1  50.00  20.97  10.49  0  48.00  53.00  52.90  2.10  49.00  21.40  10.70  0  48.00  \
51.00  50.90  1.00  2025-06-01 10:11:12
"""

# What rank 0 says of the rings of four GPUs in two nodes, all ranks of connections and trees, and sizes of choices.
GRAPHS = """\
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 4194304 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1
#  Rank  0 Group  0 Pid    101 on     node-a device  0 [0000:18:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid    102 on     node-a device  1 [0000:2a:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid    103 on     node-a device  2 [0000:3a:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid    104 on     node-a device  3 [0000:4a:00] NVIDIA H100 80GB HBM3
NCCL version 2.27.5+cuda12.9
node-a:101:140 [0] NCCL INFO comm 0x55 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0
node-a:101:140 [0] NCCL INFO Channel 00/02 :    0   1   2   3
node-a:101:140 [0] NCCL INFO Channel 01/02 :    0   2   1   3
node-a:101:140 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->3
node-a:102:141 [1] NCCL INFO Trees [0] 2/-1/-1->1->0 [1] 2/-1/-1->1->0
node-a:103:142 [2] NCCL INFO Trees [0] 3/-1/-1->2->1 [1] -1/-1/-1->2->1
node-a:104:143 [3] NCCL INFO Trees [0] -1/-1/-1->3->2 [1] 0/-1/-1->3->-1
node-a:101:140 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node-a:102:141 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[2] via P2P/CUMEM
node-a:103:142 [2] NCCL INFO Channel 00/0 : 2[2] -> 3[3] via P2P/CUMEM
node-a:104:143 [3] NCCL INFO Channel 00/0 : 3[3] -> 0[0] via P2P/CUMEM
node-a:101:140 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
node-a:101:140 [0] NCCL INFO AllReduce: 8 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
           8             2     float     sum      -1    14.27    0.00    0.00       0    14.31    0.00    0.00       0
node-a:101:140 [0] NCCL INFO AllReduce: 65536 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
       65536         16384     float     sum      -1    24.00    2.73    4.10       0    24.02    2.73    4.10       0
node-a:101:140 [0] NCCL INFO AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}
     4194304       1048576     float     sum      -1    90.30   46.45   69.67       0    91.94   45.62   68.43       0
# Avg bus bandwidth    : 24.6
"""

ALL = (
    OF_TODAY,
    OF_2019,
    GATHER_2019,
    BLANK_OPERATION,
    OF_RCCL,
    CHOSEN,
    CUT,
    PER_ITERATION,
    GRAPHS,
    *map(launched_by, LAUNCHERS),
)


def damaged(text, draw):
    """Return a text with one to four changes such as pastes, editors and broken disks make."""
    for _ in range(draw.randint(1, 4)):
        lines = text.split("\n")
        at = draw.randrange(len(text) + 1)
        line, other = draw.randrange(len(lines)), draw.randrange(len(lines))
        match draw.randrange(8):
            case 0:
                text = text[:at] + text[at + draw.randint(1, 40) :]
            case 1:
                text = text[:at] + draw.choice("0123456789.-+eE#:*|[]NA/ \t\n\r\x00\x1b\u00e9\u0663") + text[at + 1 :]
            case 2:
                text = (
                    text[:at]
                    + draw.choice(["9" * 5000, " " * 3000, "1e999", "nan", "-", "N/A", "float", "\n"])
                    + text[at:]
                )
            case 3:
                lines[line], lines[other] = lines[other], lines[line]
                text = "\n".join(lines)
            case 4:
                text = "\n".join([*lines[:line], lines[other] + lines[line], *lines[line + 1 :]])
            case 5:
                text = "\n".join([*lines[:line], *lines[other:]])
            case 6:
                text = text[:at]
            case _:
                words = lines[line].split(" ")
                draw.shuffle(words)
                lines[line] = " ".join(words)
                text = "\n".join(lines)
    return text
