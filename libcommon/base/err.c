/* Provides errors as values: fills an spx_err, and puts context in front of its message (base/err.h). */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

static const spx_err_option *options;

void spx_err_options(const spx_err_option *option)
{
    options = option;
}

/* A message that is being put together; what does not fit is left out. */
typedef struct {
    char *s;
    size_t n, size;
} message;

static void add(message *m, const char *s, size_t n)
{
    const size_t most = m->size - 1 - m->n;
    n = n < most ? n : most;
    memcpy(m->s + m->n, s, n);
    m->n += n;
    m->s[m->n] = '\0';
}

static void add_text(message *m, const char *s)
{
    add(m, s, strlen(s));
}

/* The option whose {parameter} is at `s`; NULL: none. */
static const spx_err_option *option_at(const char *s)
{
    for (const spx_err_option *o = options; o != NULL && o->parameter != NULL; o++) {
        const size_t n = strlen(o->parameter);
        if (strncmp(s + 1, o->parameter, n) == 0 && s[1 + n] == '}')
            return o;
    }
    return NULL;
}

/* Text with options in place of {parameter}s. */
static void add_with_options(message *m, const char *s)
{
    while (*s != '\0') {
        const spx_err_option *o = *s == '{' ? option_at(s) : NULL;
        const size_t n = o == NULL ? 1 + strcspn(s + 1, "{") : strlen(o->parameter) + 2;
        if (o == NULL)
            add(m, s, n);
        else
            add_text(m, o->option);
        s += n;
    }
}

/* `file:place` */
static void add_where(message *m, const spx_err *e)
{
    add_text(m, e->file);
    if (e->place[0] == '\0')
        return;
    if (e->file[0] != '\0' && e->place[0] != '[')
        add_text(m, e->place[0] == '/' ? ":" : ": ");
    add_text(m, e->place);
}

const char *spx_err_text(const spx_err *e)
{
    static _Thread_local char whole[sizeof e->file + sizeof e->place + sizeof e->text + sizeof e->remedy];
    message m = {.s = whole, .size = sizeof whole};
    whole[0] = '\0';
    add_where(&m, e);
    if (m.n > 0 && e->text[0] != '\0')
        add_text(&m, ": ");
    add_with_options(&m, e->text);
    if (m.n > 0 && e->remedy[0] != '\0')
        add_text(&m, ": ");
    add_with_options(&m, e->remedy);
    return whole;
}

static void set(char *field, size_t size, const char *s)
{
    message m = {.s = field, .size = size};
    field[0] = '\0';
    if (s != NULL)
        add_text(&m, s);
}

static spx_status fail(spx_err *e, spx_status code, const char *file, const char *place, const char *remedy,
                       const char *fmt, va_list ap)
{
    if (e != NULL && e->code == SPX_OK) {
        e->code = code;
        set(e->file, sizeof e->file, file);
        set(e->place, sizeof e->place, place);
        set(e->remedy, sizeof e->remedy, remedy);
        (void)vsnprintf(e->text, sizeof e->text, fmt, ap);
    }
    return code;
}

spx_status spx_fail(spx_err *e, spx_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fail(e, code, NULL, NULL, NULL, fmt, ap);
    va_end(ap);
    return code;
}

spx_status spx_fail_remedy(spx_err *e, spx_status code, const char *remedy, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fail(e, code, NULL, NULL, remedy, fmt, ap);
    va_end(ap);
    return code;
}

spx_status spx_fail_at(spx_err *e, spx_status code, const char *file, const char *place, const char *remedy,
                       const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fail(e, code, file, place, remedy, fmt, ap);
    va_end(ap);
    return code;
}

spx_status spx_err_pass(spx_err *e, const spx_err *from)
{
    if (e != NULL && e->code == SPX_OK)
        *e = *from;
    return from->code;
}

/* Move file and place, where there are any, into the text, behind `front`. */
static void into_text(spx_err *e, const char *front)
{
    char text[sizeof e->text];
    message m = {.s = text, .size = sizeof text};
    text[0] = '\0';
    if (front != NULL) {
        add_text(&m, front);
        add_text(&m, ": ");
    }
    const size_t n = m.n;
    add_where(&m, e);
    if (m.n > n)
        add_text(&m, ": ");
    add_text(&m, e->text);
    memcpy(e->text, text, sizeof text);
    e->file[0] = e->place[0] = '\0';
}

spx_status spx_err_at(spx_err *e, const char *file, const char *place)
{
    if (e == NULL)
        return SPX_EBUG;
    if (e->code == SPX_OK)
        return SPX_OK;
    if (place == NULL && strcmp(e->file, file) == 0)
        return e->code;
    if (e->file[0] != '\0' || (place != NULL && e->place[0] != '\0'))
        into_text(e, NULL);
    set(e->file, sizeof e->file, file);
    if (place != NULL)
        set(e->place, sizeof e->place, place);
    return e->code;
}

spx_status spx_err_context(spx_err *e, const char *fmt, ...)
{
    if (e == NULL)
        return SPX_EBUG;
    if (e->code == SPX_OK)
        return SPX_OK;
    char front[sizeof e->text];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(front, sizeof front, fmt, ap);
    va_end(ap);
    into_text(e, front);
    return e->code;
}

void spx_err_clear(spx_err *e)
{
    if (e != NULL)
        *e = (spx_err){0};
}
