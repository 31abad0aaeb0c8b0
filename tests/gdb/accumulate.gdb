# Watch one element of a gradient over two micro-batches: 0, a, a + b.
# make gdb ARGS="train --model tiny --layers 1 --steps 1 --batch 4 --micro-batch 2 --quiet"
tback 7
tgrad h.0.mlp.c_fc.weight
twatch h.0.mlp.c_fc.weight 24 19
continue
continue
tgrad h.0.mlp.c_fc.weight
