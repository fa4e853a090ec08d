#include "base/err.h"

#include <stdio.h>
#include <string.h>

spx_status spx_fail(spx_err *e, spx_status code, const char *fmt, ...)
{
    if (e != NULL && e->code == SPX_OK) {
        va_list ap;
        va_start(ap, fmt);
        e->code = code;
        (void)vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
    }
    return code;
}

spx_status spx_err_context(spx_err *e, const char *fmt, ...)
{
    if (e == NULL)
        return SPX_EBUG;
    if (e->code == SPX_OK)
        return SPX_OK;
    char front[sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(front, sizeof front, fmt, ap);
    va_end(ap);
    size_t n = strlen(front);
    if (n + 3 > sizeof e->msg)
        return e->code;
    /* keep the beginning of the message when both do not fit */
    size_t room = sizeof e->msg - n - 3, m = strlen(e->msg);
    if (m > room)
        m = room;
    memmove(e->msg + n + 2, e->msg, m);
    e->msg[n + 2 + m] = '\0';
    memcpy(e->msg, front, n);
    memcpy(e->msg + n, ": ", 2);
    return e->code;
}

void spx_err_clear(spx_err *e)
{
    if (e != NULL) {
        e->code = SPX_OK;
        e->msg[0] = '\0';
    }
}
