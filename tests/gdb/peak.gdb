# The moment when most bytes are held, and whose they are.
# make gdb ARGS="train --model tiny --layers 1 --steps 1 --batch 4 --micro-batch 2 --quiet"
tpeak
up 5
tnode 11
tarena
tledger
twhy h.0.mlp.gelu
