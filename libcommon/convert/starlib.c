/* Writes a folder of model spectra, complete or not at all (convert/starlib.h). */
#include "convert/starlib.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/tmpfile.h"
#include "fits/write.h"

/* Signals that are deferred: a handler cannot remove a folder of files, so the writer checks between two files. */
enum { NSIGNAL = 4 };
static const int signals[NSIGNAL] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static volatile sig_atomic_t caught;

static void note_signal(int sig)
{
    caught = sig;
}

static void guard(spx_starlib *l)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    (void)sigemptyset(&sa.sa_mask);
    sa.sa_handler = note_signal;
    sa.sa_flags = SA_RESTART;
    caught = 0;
    for (int i = 0; i < NSIGNAL; i++)
        if (sigaction(signals[i], NULL, &l->before[i]) == 0 && l->before[i].sa_handler != SIG_IGN)
            (void)sigaction(signals[i], &sa, NULL);
    l->guarded = 1;
}

/* Content of a folder: none, empty, a library, or files that must stay. */
typedef enum { ABSENT, EMPTY, LIBRARY, OTHER } folder;

static folder folder_content(const char *dir)
{
    struct stat sb;
    if (lstat(dir, &sb) != 0)
        return ABSENT;
    DIR *d = S_ISDIR(sb.st_mode) ? opendir(dir) : NULL;
    if (d == NULL)
        return OTHER;
    folder is = EMPTY;
    for (struct dirent *f = readdir(d); f != NULL && is != OTHER; f = readdir(d)) {
        size_t n = strlen(f->d_name);
        if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0)
            continue;
        is = n > 5 && strcmp(f->d_name + n - 5, ".fits") == 0 ? LIBRARY : OTHER;
    }
    (void)closedir(d);
    return is;
}

/* Removes a folder of files. */
static void remove_folder(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *f = d != NULL ? readdir(d) : NULL; f != NULL; f = readdir(d))
        (void)unlinkat(dirfd(d), f->d_name, 0);
    if (d != NULL)
        (void)closedir(d);
    (void)rmdir(dir);
}

spx_status spx_starlib_open(spx_starlib *l, const char *dir, int force, spx_err *e)
{
    memset(l, 0, sizeof *l);
    if ((l->target = spx_strdup(dir, e)) == NULL)
        return SPX_EIO;
    size_t n = strlen(dir);
    while (n > 1 && l->target[n - 1] == '/')
        l->target[--n] = '\0';
    folder is = folder_content(l->target);
    if (is == OTHER)
        return spx_fail_at(e, SPX_EIO, l->target, NULL, "give the name of a new folder",
                           "is there and is not a library");
    if (is == LIBRARY && !force)
        return spx_fail_at(e, SPX_EIO, l->target, NULL, "give -f to replace it", "exists already");
    l->replace = is == LIBRARY;

    const char *slash = strrchr(l->target, '/'), *base = slash != NULL ? slash + 1 : l->target;
    int len = slash == NULL ? 0 : (int)(slash - l->target) + 1;
    char name[NAME_MAX + 1], *temp = spx_alloc((size_t)len + sizeof name, 1, e);
    if (temp == NULL)
        return SPX_EIO;
    spx_tmpfile_name(base, NAME_MAX, name);
    (void)snprintf(temp, (size_t)len + sizeof name, "%.*s%s", len, l->target, name);
    guard(l);
    if (mkdir(temp, 0777) != 0) {
        spx_fail_at(e, SPX_EIO, l->target, NULL, NULL, "cannot make the folder: %s", strerror(errno));
        spx_free(temp);
        return SPX_EIO;
    }
    l->temp = temp;
    return SPX_OK;
}

/* Writes one file with one array. */
static spx_status write_file(spx_starlib *l, const char *file, int bitpix, size_t n, const void *data,
                             const spx_cards *cards, spx_err *e)
{
    if (caught != 0)
        return spx_fail(e, SPX_EIO, "%s: interrupted", l->target);
    size_t size = strlen(l->temp) + strlen(file) + 2;
    char *path = spx_alloc(size, 1, e);
    if (path == NULL)
        return SPX_EIO;
    (void)snprintf(path, size, "%s/%s", l->temp, file);
    spx_status st = SPX_OK;
    spx_fits_out out = {.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), .name = l->target};
    if (out.fd < 0)
        st = errno == EEXIST ? spx_fail_at(e, SPX_EUSAGE, l->target, NULL, "give axes without equal values",
                                           "two models are called %s", file)
                             : spx_fail(e, SPX_EIO, "%s/%s: cannot write: %s", l->target, file, strerror(errno));
    else
        st = spx_fits_out_image(&out, NULL, bitpix, 1, &n, data, cards, e);
    if (out.fd >= 0 && close(out.fd) != 0 && st == SPX_OK)
        st = spx_fail(e, SPX_EIO, "%s/%s: cannot write: %s", l->target, file, strerror(errno));
    spx_free(path);
    return st;
}

spx_status spx_starlib_wavelength(spx_starlib *l, size_t n, const double *wavelength, spx_err *e)
{
    spx_cards h = {0};
    spx_status st = spx_cards_set_string(&h, "UNIT", "angstrom", NULL, e);
    if (st == SPX_OK)
        st = spx_cards_set_string(&h, "AIRORVAC", "vac", "wavelengths in vacuum", e);
    if (st == SPX_OK)
        st = write_file(l, "WAVE_SPECPIPE-SYNTHETIC.fits", -64, n, wavelength, &h, e);
    spx_cards_free(&h);
    return st;
}

/* Formats a number of a PHOENIX name: one decimal where that is exact, else more. */
static void short_number(double v, int decimals, char out[32])
{
    double scale = pow(10.0, decimals);
    (void)snprintf(out, 32, "%+.*f", fabs(v * scale - round(v * scale)) < 1e-6 ? decimals : 4, v);
}

spx_status spx_starlib_add(spx_starlib *l, double teff, double logg, double feh, double alpha, size_t n,
                           const double *flux, spx_err *e)
{
    char name[200], g[32], m[32], a[32] = "", t[32];
    short_number(teff, 0, t);
    short_number(-logg, 2, g); /* PHOENIX names have the gravity with a minus sign, and "-0.0" for solar */
    short_number(feh == 0.0 ? -0.0 : feh, 1, m);
    if (alpha != 0.0)
        short_number(alpha, 2, a);
    (void)snprintf(name, sizeof name, "lte%s%s%s%s%s%s.SPECPIPE-SYNTHETIC.fits", strlen(t) < 6 ? "0" : "", t + 1, g, m,
                   alpha != 0.0 ? ".Alpha=" : "", a);
    spx_cards h = {0};
    spx_status st = spx_cards_set_double(&h, "PHXTEFF", teff, "[K] effective temperature", e);
    if (st == SPX_OK)
        st = spx_cards_set_double(&h, "PHXLOGG", logg, "[cm/s^2] log10 of the surface gravity", e);
    if (st == SPX_OK)
        st = spx_cards_set_double(&h, "PHXM_H", feh, "[M/H] metallicity", e);
    if (st == SPX_OK)
        st = spx_cards_set_double(&h, "PHXALPHA", alpha, "[a/M] excess of alpha elements", e);
    if (st == SPX_OK)
        st = spx_cards_set_string(&h, "BUNIT", "erg/s/cm^2/cm", "flux per unit wavelength", e);
    float *row = st == SPX_OK ? spx_alloc(n, sizeof *row, e) : NULL;
    if (st == SPX_OK && row == NULL)
        st = SPX_EIO;
    for (size_t j = 0; j < n && st == SPX_OK; j++)
        row[j] = (float)flux[j];
    if (st == SPX_OK)
        st = write_file(l, name, -32, n, row, &h, e);
    spx_free(row);
    spx_cards_free(&h);
    l->n += st == SPX_OK;
    return st;
}

spx_status spx_starlib_commit(spx_starlib *l, spx_err *e)
{
    char *old = NULL;
    size_t size = strlen(l->temp) + 8;
    if (l->replace) {
        if ((old = spx_alloc(size, 1, e)) == NULL)
            return SPX_EIO;
        (void)snprintf(old, size, "%s.old", l->temp);
        if (rename(l->target, old) != 0) {
            spx_free(old);
            return spx_fail_at(e, SPX_EIO, l->target, NULL, NULL, "cannot be replaced: %s", strerror(errno));
        }
    }
    spx_status st = SPX_OK;
    if (rename(l->temp, l->target) != 0) { /* also over an empty folder */
        st = spx_fail_at(e, SPX_EIO, l->target, NULL, NULL, "cannot be written: %s", strerror(errno));
        if (old != NULL)
            (void)rename(old, l->target);
    } else {
        spx_free(l->temp);
        l->temp = NULL;
        if (old != NULL)
            remove_folder(old);
    }
    spx_free(old);
    return st;
}

void spx_starlib_discard(spx_starlib *l)
{
    if (l->temp != NULL)
        remove_folder(l->temp);
    spx_free(l->temp);
    spx_free(l->target);
    int again = l->guarded ? caught : 0;
    for (int i = 0; i < NSIGNAL && l->guarded; i++)
        (void)sigaction(signals[i], &l->before[i], NULL);
    memset(l, 0, sizeof *l);
    if (again != 0)
        (void)raise(again);
}
