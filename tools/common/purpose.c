#include "common/purpose.h"

#include <ctype.h>
#include <string.h>

#include "base/log.h"

enum { LENGTH = 32 }; /* of a purpose */

static const char *const keywords[] = {"OBSTYPE", "FLAVOR", "IMAGETYP"};
enum { KEYWORDS = sizeof keywords / sizeof *keywords };

/* 0: the header does not say it. */
static int purpose_of(const spx_cards *header, const char *keyword, char purpose[LENGTH])
{
    return spx_cards_string(header, keyword, purpose, LENGTH) && purpose[0] != '\0';
}

/* Does a word of the text begin with one of `words`? */
static int has_word(const char *text, const char *const *words)
{
    for (const char *const *w = words; *w != NULL; w++)
        for (const char *at = text; (at = strcasestr(at, *w)) != NULL; at++)
            if (at == text || !isalpha((unsigned char)at[-1]))
                return 1;
    return 0;
}

void spx_warn_of_purpose(const spx_cards *header, const char *name, const char *const *words, const char *what)
{
    char purpose[LENGTH];
    for (size_t i = 0; i < KEYWORDS; i++) {
        int is = !purpose_of(header, keywords[i], purpose);
        for (const char *const *w = words; *w != NULL && !is; w++)
            is = strcasestr(purpose, *w) != NULL;
        if (is)
            continue;
        spx_warn("%s: %s in its header is %s: is it %s?", name, keywords[i], purpose, what);
        return;
    }
}

void spx_warn_of_lamp(const spx_cards *header, const char *name)
{
    static const char *const lamp[] = {"flat", "arc", "lamp", "comp", "dome", "bias", "zero", "dark", NULL};
    static const char *const sun[] = {"sky", "twi", NULL};
    char purpose[LENGTH];
    for (size_t i = 0; i < KEYWORDS; i++)
        if (purpose_of(header, keywords[i], purpose) && has_word(purpose, lamp) && !has_word(purpose, sun)) {
            spx_warn("%s: %s in its header is %s: are these spectra of stars?", name, keywords[i], purpose);
            return;
        }
}
