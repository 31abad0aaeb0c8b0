# A linear and a softmax, 2 x 2: every number of the backward against paper.
# make gdb EXAMPLE=by_hand
tback 1
tnode 1
tcheck 1
tgrad by_hand.causal_softmax
tbreak vec_dot if n == 2
continue
finish
next
next
next
printf "%.4g\n", dx[0]
next
next
printf "%.4g\n", dx[1]
tback 0
tgrad by_hand.linear
ttensor x
twatch w 1 0
continue
tgrad w
