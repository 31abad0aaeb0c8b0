# Catch a NaN where it is made.
# make gdb ARGS="train --model tiny --layers 1 --steps 9 --batch 4 --optimizer sgd --clip 0 --lr 1e6 --quiet --trap-nan"
tnan
tnode 3
ttensor h.0.attn.attention
ttensor h.0.attn.c_attn
continue
