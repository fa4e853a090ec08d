/* Provides threads that take turns (turns.c). */
#ifndef SPX_TESTS_TRUST_TURNS_H
#define SPX_TESTS_TRUST_TURNS_H

#include <pthread.h>

/* 1: threads take turns; 0: they are the system's. To be set before the first. */
extern int spx_turns;

/* pthread_create() of a thread that takes turns. */
int spx_turns_create(pthread_t *to, void *(*start)(void *), void *data);

#endif
