# Stop anywhere: in forward, in backward, at the next node.
# make gdb ARGS="train --model tiny --layers 1 --steps 1 --batch 4 --micro-batch 2 --quiet"
tfwd 7
up 5
tback 7
tnode 7
step
step
step
step
step
up
tgrad h.0.mlp.c_fc
tnext
tgrad h.0.mlp.ln_2
tnext
tape
print n->in[0]
twhy h.0.attn.attention
tgrad h.0.mlp.cfc
