# Catch a NaN where it is made.
# make gdb ARGS="train --model tiny --layers 1 --steps 9 --batch 4 --lr 1e6 --weight-decay 1e6 --quiet --trap-nan"
tnan
tnode 3
ttensor h.0.attn.attention
up
continue
