/* Errors: how fields make a message, contexts, lengths, names of options. */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

#include "check.h"

static int is(const char *have, const char *want)
{
    if (strcmp(have, want) == 0)
        return 1;
    fprintf(stderr, "'%s' instead of '%s'\n", have, want);
    return 0;
}

/* Text of an error of these fields. */
static const char *text_of(const char *file, const char *place, const char *remedy, const char *text)
{
    spx_err_clear(&e);
    CHECK(spx_fail_at(&e, SPX_EINPUT, file, place, remedy, "%s", text) == SPX_EINPUT && e.code == SPX_EINPUT);
    return spx_err_text(&e);
}

static void check_text(void)
{
    CHECK(is(text_of(NULL, NULL, NULL, "no"), "no"));
    CHECK(is(text_of(NULL, NULL, "do", "no"), "no: do"));
    CHECK(is(text_of("a.h5", NULL, NULL, "no"), "a.h5: no"));
    CHECK(is(text_of("a.h5", "/image", NULL, "no"), "a.h5:/image: no"));
    CHECK(is(text_of("a.fits", "FLUX", "do", "no"), "a.fits: FLUX: no: do"));
    CHECK(is(text_of("a.h5:/x", "[3]", "do", "no"), "a.h5:/x[3]: no: do"));
    CHECK(is(text_of(NULL, "/image", "do", "no"), "/image: no: do"));
    CHECK(is(text_of("100%s.h5", "/%d", "100%", "%n"), "100%s.h5:/%d: %n: 100%"));
    CHECK(is(text_of("a.h5", NULL, "do", ""), "a.h5: do"));
    spx_err none = {0};
    CHECK(is(spx_err_text(&none), ""));
}

/* The first error stays, and a NULL is no place for one. */
static void check_first(void)
{
    spx_err other = {0};
    spx_err_clear(&e);
    CHECK(spx_fail_remedy(&e, SPX_EIO, "do", "number %d", 1) == SPX_EIO);
    CHECK(spx_fail(&e, SPX_EBUG, "number 2") == SPX_EBUG);
    CHECK(spx_fail_at(&e, SPX_EBUG, "f", "/p", "r", "number 3") == SPX_EBUG);
    CHECK(e.code == SPX_EIO && e.file[0] == '\0' && is(spx_err_text(&e), "number 1: do"));
    CHECK(spx_err_pass(&other, &e) == SPX_EIO && is(spx_err_text(&other), "number 1: do"));
    spx_err_clear(&e);
    CHECK(e.code == SPX_OK && is(spx_err_text(&e), ""));
    (void)spx_fail(&e, SPX_EINPUT, "later");
    CHECK(spx_err_pass(&other, &e) == SPX_EINPUT && is(spx_err_text(&other), "number 1: do"));
    CHECK(spx_fail(NULL, SPX_ENO, "x") == SPX_ENO && spx_err_pass(NULL, &e) == SPX_EINPUT);
    CHECK(spx_err_at(NULL, "f", NULL) == SPX_EBUG && spx_err_context(NULL, "f") == SPX_EBUG);
}

static void check_context(void)
{
    spx_err_clear(&e);
    CHECK(spx_err_at(&e, "f", "/p") == SPX_OK && spx_err_context(&e, "c") == SPX_OK && is(spx_err_text(&e), ""));
    (void)spx_fail_remedy(&e, SPX_EINPUT, "do", "no");
    CHECK(spx_err_context(&e, "column %s", "x") == SPX_EINPUT && is(spx_err_text(&e), "column x: no: do"));
    CHECK(spx_err_at(&e, "a.h5", "/table") == SPX_EINPUT && is(e.file, "a.h5") && is(e.place, "/table"));
    CHECK(is(spx_err_text(&e), "a.h5:/table: column x: no: do"));
    (void)spx_err_at(&e, "a.h5", NULL); /* which it says already */
    CHECK(is(spx_err_text(&e), "a.h5:/table: column x: no: do"));
    /* a second file: the first is a part of what is wrong with it */
    (void)spx_err_at(&e, "list", NULL);
    CHECK(is(e.file, "list") && is(e.place, "") && is(e.remedy, "do"));
    CHECK(is(spx_err_text(&e), "list: a.h5:/table: column x: no: do"));
    (void)spx_err_context(&e, "first");
    CHECK(is(e.file, "") && is(spx_err_text(&e), "first: list: a.h5:/table: column x: no: do"));
    /* a file for an error that has its place already, and a place before a place */
    spx_err_clear(&e);
    (void)spx_fail_at(&e, SPX_EINPUT, NULL, "/fibermap", NULL, "no");
    (void)spx_err_at(&e, "a.h5", NULL);
    CHECK(is(spx_err_text(&e), "a.h5:/fibermap: no"));
    spx_err_clear(&e);
    (void)spx_fail_at(&e, SPX_EINPUT, NULL, "row 3", NULL, "no");
    (void)spx_err_at(&e, "a.h5", "/fibermap");
    CHECK(is(spx_err_text(&e), "a.h5:/fibermap: row 3: no"));
}

/* Fields of any length are cut, never overrun. */
static void check_long(void)
{
    static char lengthy[5000];
    memset(lengthy, 'x', sizeof lengthy - 1);
    spx_err_clear(&e);
    (void)spx_fail_at(&e, SPX_EIO, lengthy, lengthy, lengthy, "%s", lengthy);
    CHECK(strlen(e.file) == sizeof e.file - 1 && strlen(e.place) == sizeof e.place - 1);
    CHECK(strlen(e.text) == sizeof e.text - 1 && strlen(e.remedy) == sizeof e.remedy - 1);
    CHECK(strlen(spx_err_text(&e)) == sizeof e.file + sizeof e.place + sizeof e.text + sizeof e.remedy - 1);
    (void)spx_err_context(&e, "%s", lengthy);
    CHECK(strlen(e.text) == sizeof e.text - 1 && e.file[0] == '\0' && e.place[0] == '\0');
}

static void check_options(void)
{
    static const spx_err_option option[] = {{"npoly", "--npoly"}, {"device", "--device"}, {NULL, NULL}};
    spx_err_clear(&e);
    (void)spx_fail_at(&e, SPX_EUSAGE, "{npoly}", "{device}", "use {npoly} or {n_bins}, {} or {{npoly}} {npoly",
                      "{device} %s {", "cuda");
    CHECK(is(spx_err_text(&e), "{npoly}: {device}: {device} cuda {: use {npoly} or {n_bins}, {} or {{npoly}} {npoly"));
    spx_err_options(option);
    CHECK(is(spx_err_text(&e), "{npoly}: {device}: --device cuda {: use --npoly or {n_bins}, {} or {--npoly} {npoly"));
    spx_err_clear(&e);
    (void)spx_fail(&e, SPX_EUSAGE, "{npoly}{device}");
    (void)spx_err_context(&e, "first");
    CHECK(is(spx_err_text(&e), "first: --npoly--device"));
    spx_err_options(NULL);
    CHECK(is(spx_err_text(&e), "first: {npoly}{device}"));
}

int main(void)
{
    check_text();
    check_first();
    check_context();
    check_long();
    check_options();
    return 0;
}
