/* Checks that lines of text are read as they are, and that a file without line breaks does not fill the memory: a
 * sparse FITS file of 16 GB was read whole as one line. */
#include "base/lines.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check_on.h"
#include "convert/spectrum/text_table.h"

int main(void)
{
    char name[] = "/tmp/test_lines_XXXXXX";
    const int fd = mkstemp(name);
    spx_lines l;
    spx_err e = {0};
    size_t n;
    CHECK(fd >= 0 && write(fd, "one # two\r\n\n\n last", 18) == 18);
    CHECK(spx_lines_open(&l, name, &e) == SPX_OK);
    CHECK(strcmp(spx_lines_next(&l), "one") == 0 && l.number == 1);
    CHECK(strcmp(spx_lines_next(&l), "last") == 0 && l.number == 4);
    CHECK(spx_lines_next(&l) == NULL && spx_lines_close(&l, SPX_OK, &e) == SPX_OK);
    CHECK(spx_lines_open(&l, name, &e) == SPX_OK);
    CHECK(strcmp(spx_lines_raw(&l, &n), "one # two\r\n") == 0 && n == 11);
    CHECK(spx_lines_close(&l, SPX_OK, &e) == SPX_OK);
    /* no line break */
    CHECK(ftruncate(fd, (off_t)1 << 40) == 0);
    CHECK(spx_lines_open(&l, name, &e) == SPX_OK);
    for (int i = 0; i < 3; i++)
        CHECK(spx_lines_raw(&l, &n) != NULL);
    CHECK(spx_lines_raw(&l, &n) == NULL && l.capacity <= 2 * (size_t)SPX_LINE_MOST);
    CHECK(spx_lines_close(&l, SPX_OK, &e) == SPX_EINPUT && strstr(spx_err_text(&e), ":4: is longer than") != NULL);
    spx_fits_spectra s;
    CHECK(ftruncate(fd, 0) == 0 && ftruncate(fd, (off_t)1 << 40) == 0);
    CHECK(spx_text_spectrum_find(name, &s, &e) == SPX_OK && s.n == 0);
    close(fd);
    unlink(name);
    return bad;
}
