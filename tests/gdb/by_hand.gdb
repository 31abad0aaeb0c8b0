# A linear and a softmax, 2 x 2: every number of the backward against paper.
# EXAMPLE by_hand
tback 1
tnode 1
tgrad by_hand.causal_softmax
next 5
print sum
next
next
next
next
next
next
next
next
next
print r
print sum
print y[1]
print dy[1]
next 4
print dx[0]
print dx[1]
tcheck 1
tback 0
tgrad by_hand.linear
ttensor x
tgrad w
twatch w 1 0
continue
tgrad w
up
