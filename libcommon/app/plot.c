#include "app/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tmpfile.h"

extern char **environ;

spx_status spx_plot_begin(spx_text *script, const char *name, int width, int height, spx_err *e)
{
    static const struct {
        const char *end, *terminal, *unit;
        double scale;
    } kind[] = {{".png", "pngcairo noenhanced font 'Sans,11'", "", 1},
                {".svg", "svg noenhanced font 'Sans,11'", "", 1},
                {".pdf", "pdfcairo noenhanced font 'Sans,11'", "in", 1.0 / 96}};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++)
        if (n > 4 && strcmp(name + n - 4, kind[i].end) == 0)
            return spx_text_add(script, e, "set terminal %s size %g%s,%g%s\nset encoding utf8\n", kind[i].terminal,
                                width * kind[i].scale, kind[i].unit, height * kind[i].scale, kind[i].unit);
    return spx_fail(e, SPX_EUSAGE, "%s: a picture's name ends in .png, .svg or .pdf", name);
}

spx_status spx_plot_run(const spx_text *script, int fd, spx_err *e)
{
    static char program[] = "gnuplot", from_stdin[] = "-";
    char *argv[] = {program, from_stdin, NULL};
    int pipe_fd[2], status = 0;
    posix_spawn_file_actions_t actions;
    pid_t child;
    if (pipe2(pipe_fd, O_CLOEXEC) != 0)
        return spx_fail(e, SPX_EIO, "gnuplot: cannot be started: %s", strerror(errno));
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed == 0) {
        failed = posix_spawn_file_actions_adddup2(&actions, pipe_fd[0], STDIN_FILENO);
        if (failed == 0)
            failed = posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
        if (failed == 0)
            failed = posix_spawnp(&child, program, &actions, NULL, argv, environ);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)close(pipe_fd[0]);
    if (failed != 0) {
        (void)close(pipe_fd[1]);
        return spx_fail(e, SPX_EIO, "gnuplot: cannot be started: %s: is it installed?", strerror(failed));
    }
    spx_err broken = {0};
    spx_status st = spx_write_all(pipe_fd[1], script->s, script->n, "gnuplot", &broken);
    (void)close(pipe_fd[1]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    /* what gnuplot says of itself is on standard error */
    if (st != SPX_OK || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return spx_fail(e, SPX_EIO, "gnuplot: failed to draw the picture");
    return SPX_OK;
}
