/* Ends a program in order, whatever ends it: a signal, a crash, a library that calls exit(), a thread that cannot be
 * started, a stack that is too small.
 *
 * In each case temporary files (base/tmpfile.h) are removed and one line says why. A signal and a crash then end the
 * program as they would have done (status 128 + number for a shell, a core dump, the place of the fault in a debugger);
 * every other end has status SPX_EIO. Nothing is recovered.
 *
 * pthread_create() is replaced in programs (glibc; not under sanitizers): threads of OpenMP and other libraries, too,
 * get a stack of 1 MiB at least, whatever OMP_STACKSIZE says, and a stack for the handler of crashes, without which one
 * that overflows is killed in silence. */
#ifndef SPX_ENDING_H
#define SPX_ENDING_H

#include <pthread.h>

/* Functions of the C library are replaced. */
#if defined __GLIBC__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define SPX_REPLACES_LIBC
#if defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) || __has_feature(thread_sanitizer)
#undef SPX_REPLACES_LIBC
#endif
#endif
#endif

/* Once, first of all in main(), which should have few variables of its own: `program` is the first word of messages and
 * has to stay. Raises a soft limit of the stack to 8 MiB; ends the program where the hard limit is below 1 MiB. SIGPIPE
 * and SIGXFSZ are ignored: a closed pipe and a file beyond the size limit are errors of write(). */
void spx_ending_guard(const char *program);

/* For programs that write text to standard output: restores SIGPIPE's default, also where the parent ignores it, so
 * that a reader which stops (`| head`) ends the program silently. */
void spx_text_output(void);

/* From now on the run has succeeded: its products are in place, and memory that runs out while things are closed ends
 * it with status 0, without a word. */
void spx_ending_success(void);

/* From now on exit() is meant. */
void spx_ending_expected(void);

/* A run that succeeds is to end without what libraries do at exit(): CUDA gives back one by one there what the system
 * takes at once, which takes a twentieth of a second. Not where a tool is in the process that writes its report then
 * (compute-sanitizer, nsys, ncu). */
void spx_ending_at_once(void);
/* Ends the process so, with status 0, if that is wanted. */
void spx_ending_now(void);

/* Removes temporary files, says `program: text` and ends the program with SPX_EIO. Does not allocate; for any thread,
 * and for handlers of signals. */
_Noreturn void spx_end_now(const char *text);

/* pthread_create() for callers that deal with its failure. */
int spx_thread_or_error(pthread_t *t, void *(*start)(void *), void *data);

#endif
