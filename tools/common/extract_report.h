/* Tells the user and the provenance of an extraction: counts of bins, pixels and solutions, seconds of the steps. */
#ifndef SPX_TOOLS_EXTRACT_REPORT_H
#define SPX_TOOLS_EXTRACT_REPORT_H

#include "app/main.h"
#include "extract/extract.h"

/* Warnings, each behind `label` (may be ""), and counts into the record of the product in work. SPX_ENO when there is
 * no result at all, or with `strict` not all of it. */
spx_status spx_extract_report(spx_run *s, const char *label, const spx_extract_options *eo, const spx_extract_counts *c,
                              const spx_frame *frame, const spx_psf *psf, int strict, spx_err *e);

/* Seconds of the extraction and, in processor time of all threads, of its steps. */
void spx_extract_record_seconds(spx_run *s, const char *label, double seconds, const spx_extract_counts *c);

#endif
