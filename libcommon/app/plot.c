/* Draws pictures (app/plot.h). */
#include "app/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tmpfile.h"

extern char **environ;

static const struct {
    const char *end, *terminal, *unit;
    double scale; /* units a pixel of 1/96 inch; 0: pixels of the zoom */
} kinds[] = {[SPX_PLOT_PNG] = {".png", "pngcairo", "", 0},
             [SPX_PLOT_SVG] = {".svg", "svg background '#ffffff'", "", 1},
             [SPX_PLOT_PDF] = {".pdf", "pdfcairo", "in", 1.0 / 96}};

spx_status spx_plot_format_of(const char *name, spx_plot_format *format, spx_err *e)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n > 4 && strcmp(name + n - 4, kinds[i].end) == 0) {
            *format = (spx_plot_format)i;
            return SPX_OK;
        }
    return spx_fail_at(e, SPX_EUSAGE, name, NULL, NULL, "a picture's name ends in .png, .svg or .pdf");
}

spx_status spx_plot_start(spx_text *script, spx_plot_format format, double width, double height, double zoom,
                          spx_err *e)
{
    const double scale = kinds[format].scale > 0 ? kinds[format].scale : zoom;
    spx_status st =
        spx_text_add(script, e, "set terminal %s noenhanced font 'sans-serif,10.5' size %g%s,%g%s",
                     kinds[format].terminal, width * scale, kinds[format].unit, height * scale, kinds[format].unit);
    if (st == SPX_OK && format == SPX_PLOT_PNG && zoom != 1)
        st = spx_text_add(script, e, " fontscale %g linewidth %g pointscale %g", zoom, zoom, zoom);
    /* The colours, which colour-blind eyes tell apart too: Okabe and Ito 2008. */
    return st == SPX_OK ? spx_text_add(script, e,
                                       "\nset encoding utf8\nset minussign\nset border lw 0.8 lc rgb '#303030'\n"
                                       "set tics in scale 0.8,0.4\nset key samplen 1.6 spacing 1.1\n"
                                       "set linetype 1 lc rgb '#0072B2'\nset linetype 2 lc rgb '#D55E00'\n"
                                       "set linetype 3 lc rgb '#009E73'\nset linetype 4 lc rgb '#CC79A7'\n"
                                       "set linetype 5 lc rgb '#E69F00'\nset linetype 6 lc rgb '#56B4E9'\n"
                                       "set linetype 7 lc rgb '#303030'\nset linetype cycle 7\n")
                        : st;
}

spx_status spx_plot_begin(spx_text *script, const char *name, int width, int height, spx_err *e)
{
    spx_plot_format format = SPX_PLOT_PNG;
    spx_status st = spx_plot_format_of(name, &format, e);
    return st == SPX_OK ? spx_plot_start(script, format, width, height, 1, e) : st;
}

spx_status spx_plot_run(const spx_text *script, int fd, spx_err *e)
{
    static char program[] = "gnuplot", defaults[] = "--default-settings", from_stdin[] = "-";
    char *argv[] = {program, defaults, from_stdin, NULL};
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
        return spx_fail_remedy(e, SPX_EIO, "is it installed (Debian: gnuplot-nox)?", "gnuplot: cannot be started: %s",
                               strerror(failed));
    }
    spx_err broken = {0};
    spx_status st = spx_write_all(pipe_fd[1], script->s, script->n, "gnuplot", &broken);
    (void)close(pipe_fd[1]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    /* gnuplot prints its errors to standard error */
    if (st != SPX_OK || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return spx_fail(e, SPX_EIO, "gnuplot: failed to draw the picture");
    return SPX_OK;
}

/* Writes inline data of a plot, thinned to about 4000 points; `stride` is the distance of samples in memory. */
static spx_status plot_data(spx_text *t, const char *name, const double *x, const double *y, size_t n, spx_err *e)
{
    const size_t step = n / 4000 + 1;
    spx_status st = spx_text_add(t, e, "$%s << EOD\n", name);
    for (size_t i = 0; i < n && st == SPX_OK; i += step)
        st = spx_text_add(t, e, "%.9g %.9g\n", x != NULL ? x[i] : (double)i, y[i]);
    return st == SPX_OK ? spx_text_add(t, e, "EOD\n") : st;
}

spx_status spx_plot_svd(spx_text *t, size_t nmode, size_t ncol, const double *s, const double *energy, const double *v,
                        const double *x, const char *xlabel, spx_err *e)
{
    enum { MOST = 4 };
    const size_t n = nmode < MOST ? nmode : MOST;
    char name[32];
    spx_status st = plot_data(t, "s", NULL, s, nmode, e);
    if (st == SPX_OK)
        st = plot_data(t, "energy", NULL, energy, nmode, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        (void)snprintf(name, sizeof name, "v%zu", k);
        st = plot_data(t, name, x, v + k * ncol, ncol, e);
    }
    if (st == SPX_OK)
        st = spx_text_add(
            t, e, "set xlabel '%s'\nset ylabel 'right singular vector'\nset key outside right\nset xzeroaxis\nplot",
            xlabel);
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        st = spx_text_add(t, e, "%s $v%zu using 1:2 with lines lw 1.5 title '%zu: %.3g %%'", k > 0 ? "," : "", k, k + 1,
                          100 * (energy[k] - (k > 0 ? energy[k - 1] : 0)));
    if (st == SPX_OK)
        st = spx_text_add(
            t, e,
            "\nset xlabel 'mode'\nset ylabel 'singular value'\nset y2label 'energy'\nset y2range [0:1.02]\n"
            "set y2tics\nset ytics nomirror\nset xrange [0:%zu]\n%s"
            "plot $s using ($1 + 1):2 with linespoints pt 7 ps 0.6 title 'singular value', \\\n"
            "     $energy using ($1 + 1):2 axes x1y2 with lines lw 1.5 title 'energy'\n",
            nmode + 1, s[nmode - 1] > 0 ? "set logscale y\n" : "");
    return st;
}

spx_status spx_plot_output(spx_run *stage, const char *name, const spx_text *script, spx_err *e)
{
    spx_tmpfile *picture;
    spx_status st = spx_run_tmpfile(stage, name, &picture, e);
    return st == SPX_OK ? spx_plot_run(script, picture->fd, e) : st;
}
