# A segment's replay: the same values come back.
# make gdb ARGS="train --model tiny --layers 1 --steps 1 --batch 4 --micro-batch 2 --checkpoint full --quiet"
tfwd 8
ttensor h.0.mlp.c_fc
treplay 7
up 2
tape
treplay 8
ttensor h.0.mlp.c_fc
tnext
