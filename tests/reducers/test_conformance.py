"""The conformance kit over every registered reducer."""

import warnings

import pytest

from s2sim.errors import S2SimWarning
from s2sim.reducers.registry import make_reducer, reducer_names
from s2sim.testing import reducers as kit
from s2sim.testing.reducers import check_reducer

SEEDS = 200

VARIANTS = [
    "dense:dtype=bf16",
    "dense:dtype=fp16,ef=true",
    "fp16:ef=true",
    "topk:density=0.2,ef=true",
    "topk:density=1",
    "topk:density=0.1,granularity=layer",
    "sparcml:density=0.1,algorithm=rec-dbl,ef=true",
    "sparcml:density=0.1,algorithm=split",
    "sparcml:density=0.1,algorithm=dense-split",
    "sparcml:density=1,algorithm=rec-dbl",
    "sparcml:density=1,algorithm=split",
    "sparcml:density=1",
    "sparcml:density=0.1,algorithm=dense-split,bits=4",
    "sparcml:density=1,algorithm=dense-split,bits=8",
    "ag-sparse:layers=all",
    "parallax:as_coded=true",
    "parallax:as_coded=true,layers=all",
    "parallax:layers=all",
    "omnireduce:block=7",
    "topka2a:density=0.1,ef=true",
    "topka2a:density=1,calls=together",
    "random-k:density=0.2,seed=own,granularity=global,ef=true",
    "random-k:density=0.2,seed=own,send=seed,scale=true",
    "random-block:density=0.2,seed=own",
    "random-block:density=0.2,granularity=global,ef=true",
    "qsgd:bits=8,bucket=16,coding=elias",
    "qsgd:bits=16,aggregate=server",
    "qsgd:bits=3,aggregate=two-phase",
    "terngrad:clip=2.5,wire=byte,aggregate=two-phase",
    "natural:exponent=clipped",
    "ef-signsgd:ef=true",
    "onebit-sgd:column=4,wire=byte,aggregate=gather,ef=true",
    "onebit-sgd:ef=true",
    "sbc:density=0.2,low_bits=7,ef=true",
    "fp8:form=e5m2,aggregate=gather",
    "powersgd:rank=1,reuse_query=false,ef=true",
    "powersgd:rank=5,min_compression=2",
    "acp-sgd:rank=1,ef=true",
    "arc-topk:density=0.3,rank=1,ef=ef21",
    "stc:density=0.2,aggregate=gather,ef=true",
    "signsgd-vote:aggregate=server",
    "signsgd-vote:wire=int8",
    "int8:rounding=nearest,dtype=int16",
    "terngrad:shared=true",
    "dorefa:bits=12",
    "strom:threshold=0.1,ef=true",
    "wangni:density=0.5",
    "union:layers=all",
    "union:bitmap=byte",
    "union:bitmap=float32,layers=all",
    "union:prefetch=true",
    "owner-reduce:layers=all",
    "gather-rows:layers=all",
    "s2:ef=true",
    "s2:rows=1,columns=40,hash=modulo",
    "s2:rows=5,cells=4,bitmap=byte,layers=all,hash=product",
    "s2:bitmap=float32,margin=1.5",
    "s2:preset=authors-gnmt",
    "s2:preset=authors-lstm,ef=true,layers=all",
    "s2-exact:dtype=int64",
    "s2-exact:dtype=float32",
    "s2-exact:ef=true",
    "s2-exact:dtype=float32,ef=true",
    "s2-exact:layers=all,dtype=int64,bitmap=byte",
    "s2-exact:cells=1.5,margin=0.5,bitmap=float32",
    "dense:h=3",
    "union:h=2",
    "topk:density=0.1,ef=true,h=2",
    "s2-exact:h=2",
    "s2:h=3",
    "sketched-sgd:density=0.2,candidates=1,ef=true",
    "fetchsgd:momentum=0.9,clear=zero,columns=40",
    "topk:density=0.1,ef=ef21",
    "topk:density=0.1,ef=filtered",
    "topk:density=0.1,momentum=0.9",
    "topk:density=0.1,gmc=0.9",
    "topk:density=0.1,momentum=0.5,clip=1",
    "embrace:shards=rows",
    "ccss:density=0.2,rows=1,cells=1,ef=true",
    "deepreduce:density=0.2,policy=p1,ef=true",
    "deepreduce:density=0.2,policy=p2,fpr=0.1,ef=true",
    "deepreduce:density=0.2,values=qsgd,ef=true",
    "deepreduce:density=0.2,values=poly,pieces=3,ef=true",
    "per-layer:embed*=s2-exact,*=fp16",
    "per-layer:embed*=union:prefetch=true,*=topk:density=0.2;ef=true",
    "per-layer:*=topk:density=0.2,embed*=union,ef=true",
    "per-layer:embed*=owner-reduce,*=topk,hierarchical=true,node=2",
    "dgc:density=0.1",
    "dgc-select:density=0.1,coding=distance16,threshold=sampled",
    "spardl:density=0.2,ef=true",
    "ok-topk:density=0.2,recompute=2,ef=true",
    "gtopk:density=0.2,ef=true",
    "scalecom:density=0.2,ef=true",
    "node-union:node=2",
    "node-union:node=3,prefetch=true,layers=sparse",
    "mx:form=e2m1,ef=true",
    "qgz:node=2,block=16,ef=true",
    "qgz:node=3,bits=8",
    "qsdp:bits=4,block=7",
    "thc:ef=true",
    "thc:where=network,ef=true",
    "onebit-adam:freeze_step=1",
    "onebit-lamb:freeze_step=2",
    "zero-one-adam:freeze_step=0,local_step_scaler=1,local_step_clipper=4",
    "zero-one-adam:freeze_step=3,var_update_scaler=1,local_step_clipper=1",
    "demo:chunk=4,topk=3",
    "dion:rank=1",
    "diloco:h=2",
    "slowmo:h=2",
    "diloco:h=2,wire=bf16,delay=1",
    "streaming-diloco:h=4,fragments=2,delay=1",
    "downpour:servers=3",
    "fedavg:fraction=0.5,download=all",
    "l-greco:of=topk,every=2,ef=true",
    "l-greco:of=qsgd,alpha=2",
    "pactrain:pruned=0.5",
    "pactrain:ternary=true",
]


@pytest.mark.parametrize("text", [*reducer_names(), *(pytest.param(text, marks=pytest.mark.slow) for text in VARIANTS)])
def test_every_registered_reducer_conforms(text):
    check_reducer(lambda: make_reducer(text), exhaustive=False)


@pytest.mark.slow
@pytest.mark.parametrize("text", reducer_names())
def test_every_registered_reducer_conforms_on_many_ranks(text):
    """With all numbers of ranks and many seeds; laws of one number of ranks are checked above."""
    reducer = make_reducer(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", S2SimWarning)
        taken = kit.ranks_taken(reducer, kit.RANK_COUNTS)
        if 2 in taken:
            kit.check_contraction(reducer, SEEDS)
            if kit.is_unbiased(reducer):
                kit.check_unbiased(reducer, SEEDS)
