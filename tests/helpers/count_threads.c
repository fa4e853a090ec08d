/* count_threads FILE COMMAND [ARGUMENT...]: runs COMMAND and writes into FILE how many threads it has started, beside
 * its first one; exits with its status, or with 77 where one process may not trace another.
 *
 * Counted by the kernel's events of ptrace(2), so that nothing depends on how long a thread lives. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORBIDDEN = 77 };

int main(int argc, char **argv)
{
    int status, code = 1;
    long count = 0;
    if (argc < 3) {
        (void)fputs("count_threads FILE COMMAND [ARGUMENT...]\n", stderr);
        return 2;
    }
    const pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(FORBIDDEN);
        (void)execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    /* stopped by its exec() */
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    if (ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)) != 0)
        return FORBIDDEN;
    int signal = 0;
    for (pid_t now = child;;) {
        (void)ptrace(PTRACE_CONT, now, NULL, (void *)(long)signal);
        if ((now = waitpid(-1, &status, __WALL)) < 0) {
            if (errno == EINTR)
                continue;
            break; /* all have ended */
        }
        signal = 0;
        if (WIFSTOPPED(status)) {
            const int event = status >> 16;
            count += event == PTRACE_EVENT_CLONE;
            /* a new thread begins with a stop of its own */
            signal = event == 0 && WSTOPSIG(status) != SIGSTOP && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
        } else if (now == child) {
            code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
    }
    FILE *f = fopen(argv[1], "w");
    if (f == NULL || fprintf(f, "%ld\n", count) < 0 || fclose(f) != 0)
        return 1;
    return code;
}
