/* Provides many tries of one command in one start of it (sweep.c). */
#ifndef SPX_TESTS_TRUST_SWEEP_H
#define SPX_TESTS_TRUST_SWEEP_H

/* Number of the call before which the trunk branches; 0: this process is not the trunk. */
extern long spx_sweep_next;

/* Before main(). `numbers`: FIRST:STEP:LAST. Returns in the trunk with 0, and in each branch that begins here with the
 * number of the call that fails in it. */
long spx_sweep(const char *numbers);

/* In the trunk, before call spx_sweep_next. Returns in the trunk with 0, in the branch with 1. */
int spx_sweep_branch(void);

/* In the trunk, before it gets a thread or a child: ends it. */
void spx_sweep_stop(void);

#endif
