/* Plans the product of h5merge (merge/merge.h): its groups and datasets, and the sources of their rows. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/schema.h"
#include "merge/internal.h"

static spx_merge_group *add_group(spx_merge *m, const char *path, const char *pattern, const char *name, spx_err *e)
{
    spx_merge_group *more = spx_grow(m->groups, m->ngroup, 1, &m->group_capacity, sizeof *more, e);
    if (more == NULL)
        return NULL;
    m->groups = more;
    spx_merge_group *g = &more[m->ngroup++];
    (void)snprintf(g->path, sizeof g->path, "%s", path);
    (void)snprintf(g->arm, sizeof g->arm, "%s", name);
    g->pattern = pattern;
    g->part = SPX_NO_ROW;
    return g;
}

/* Finds the group of the product at `path`, or adds it. */
static spx_merge_group *need_group(spx_merge *m, const char *path, const char *pattern, const char *name, spx_err *e)
{
    for (size_t i = 0; i < m->ngroup; i++)
        if (strcmp(m->groups[i].path, path) == 0)
            return &m->groups[i];
    return add_group(m, path, pattern, name, e);
}

static spx_status plan_groups(spx_merge *m, spx_err *e)
{
    char path[PATH_LEN];
    for (size_t i = 0; i < m->npart; i++) {
        const spx_merge_input *p = &m->part[i];
        if (m->blocks[FRAME] && need_group(m, "/frame", "/frame", m->part[0].arms[0].name, e) == NULL)
            return SPX_EIO;
        if (m->blocks[FRAME] && spx_merge_find_arm(p, m->groups[0].arm) < 0)
            return spx_fail_at(e, SPX_EINPUT, p->name, "/frame", NULL,
                               "is of camera %s, but %s of camera %s: frames of one arm make rows", p->camera,
                               m->part[0].name, m->part[0].camera);
        for (size_t a = 0; a < p->narm && m->blocks[SPECTRA]; a++) {
            (void)snprintf(path, sizeof path, "/spectra/%s", p->arms[a].name);
            spx_merge_group *g = need_group(m, path, "/spectra/<arm>", p->arms[a].name, e);
            if (g == NULL)
                return SPX_EIO;
            if (m->by == SPX_MERGE_CAMERAS)
                g->part = i;
        }
        size_t n = 0;
        char **names = NULL;
        spx_status st = m->blocks[RVFIT] ? spx_h5_list(p->file, "/rvfit", &n, &names, e) : SPX_OK;
        for (size_t k = 0; k < n && st == SPX_OK; k++) {
            (void)snprintf(path, sizeof path, "/rvfit/%.200s/exposure_model", names[k]);
            if (spx_h5_exists(p->file, path))
                st = spx_merge_leave_out(m, p, path, e);
            (void)snprintf(path, sizeof path, "/rvfit/%.200s/exposure_template", names[k]);
            if (st == SPX_OK && spx_h5_exists(p->file, path))
                st = spx_merge_leave_out(m, p, path, e);
            (void)snprintf(path, sizeof path, "/rvfit/%.200s/model", names[k]);
            if (strlen(names[k]) >= sizeof m->groups[0].arm || !spx_h5_exists(p->file, path) || st != SPX_OK)
                continue;
            (void)snprintf(path, sizeof path, "/rvfit/%.15s", names[k]);
            if (need_group(m, path, "/rvfit/<arm>", names[k], e) == NULL)
                st = SPX_EIO;
        }
        spx_h5_names_free(n, names);
        if (st != SPX_OK)
            return st;
    }
    return SPX_OK;
}

/* Merges type and shape of one input's dataset into the description of the product's. */
static spx_status look_at(spx_merge_dataset *d, const spx_merge_input *p, const char *path, int mask, int seen,
                          spx_err *e)
{
    int ndim = 0;
    size_t dims[SPX_H5_MAXDIM], bytes = 1;
    hid_t set = spx_h5_open(p->file, path, e);
    if (set < 0)
        return e->code;
    hid_t type = H5Dget_type(set);
    H5T_class_t class = H5Tget_class(type);
    size_t size = H5Tget_size(type);
    int is_signed = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
    spx_status st = spx_h5_shape(p->file, path, &ndim, dims, e);
    bytes = size;
    for (int i = 0; i < ndim && st == SPX_OK; i++)
        st = spx_mul(bytes, dims[i], &bytes, e);
    if (st == SPX_OK && spx_h5_overclaims(set, bytes))
        st = spx_fail_at(e, SPX_EINPUT, p->name, path, NULL, "claims more data than the file holds");
    (void)H5Tclose(type);
    (void)H5Dclose(set);
    if (st != SPX_OK)
        return st;
    if ((class != H5T_FLOAT && class != H5T_INTEGER) || size > 8 || (mask && (class != H5T_INTEGER || size != 4)))
        return spx_fail_at(e, SPX_EINPUT, p->name, path, NULL, "has another type of values than %s should have",
                           mask ? "a mask (32 bits)" : "this dataset");
    if (ndim < 1 || dims[0] != p->nrow)
        return spx_fail_at(e, SPX_EINPUT, p->name, path, NULL, "has %zu rows, but there are %zu spectra",
                           ndim < 1 ? 0 : dims[0], p->nrow);
    int is_float = class == H5T_FLOAT;
    if (!seen) {
        d->ndim = ndim;
        memcpy(d->dims, dims, sizeof dims);
        d->is_float = is_float;
        d->is_signed = is_signed;
        d->size = size;
        return SPX_OK;
    }
    if (ndim != d->ndim || memcmp(dims + 1, d->dims + 1, (size_t)(ndim - 1) * sizeof *dims) != 0)
        return spx_fail_at(e, SPX_EINPUT, p->name, path, NULL, "has another shape than in the inputs before it");
    if (is_float != d->is_float || (!is_float && size != d->size))
        return spx_fail_at(e, SPX_EINPUT, p->name, path, NULL,
                           "has another type of values than in the inputs before it");
    if (size > d->size)
        d->size = size;
    return SPX_OK;
}

static spx_merge_dataset *add_dataset(spx_merge *m, size_t g, const char *leaf, spx_err *e)
{
    spx_merge_dataset *more = spx_grow(m->datasets, m->ndataset, 1, &m->dataset_capacity, sizeof *more, e);
    if (more == NULL)
        return NULL;
    m->datasets = more;
    spx_merge_dataset *d = &m->datasets[m->ndataset++];
    memset(d, 0, sizeof *d);
    d->group = g;
    (void)snprintf(d->leaf, sizeof d->leaf, "%s", leaf);
    return d;
}

/* Units of a dataset are those of its definition, where that says which; none may be said. */
static spx_status check_units(const spx_merge_input *p, const char *path, const spx_item *it, spx_err *e)
{
    char units[64];
    if (it->raw || it->units[0] == '\0' || !spx_h5_has_attr(p->file, path, "units"))
        return SPX_OK;
    const spx_status st = spx_h5_attr_str(p->file, path, "units", units, sizeof units, e);
    return st != SPX_OK || units[0] == '\0' || strcmp(units, it->units) == 0
               ? st
               : spx_fail_at(e, SPX_EINPUT, p->name, path, NULL, "has units '%s': should be %s", units, it->units);
}

/* Plans one dataset of a group: the inputs that have it, and its form. */
static spx_status plan_dataset(spx_merge *m, size_t gi, const spx_item *it, const char *leaf, int missing, spx_err *e)
{
    const spx_merge_group *g = &m->groups[gi];
    const int mask = strcmp(leaf, "mask") == 0;
    size_t with = SPX_NO_ROW, without = SPX_NO_ROW;
    spx_merge_dataset found = {0};
    for (size_t i = 0; i < m->npart; i++) {
        char base[PATH_LEN], path[PATH_LEN + 80], first[PATH_LEN + 80];
        if (!spx_merge_source_path(m, g, i, base))
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", base, leaf);
        if (!spx_h5_exists(m->part[i].file, path)) {
            const spx_item *own = spx_schema_find(path); /* frames need a mask, arms of spectra do not */
            without = i;
            if (it->required || (own != NULL && own->required))
                return spx_fail_at(e, SPX_EINPUT, m->part[i].name, path, NULL,
                                   "is missing: is the file complete? (h5check tells)");
            continue;
        }
        spx_status st = look_at(&found, &m->part[i], path, mask, with != SPX_NO_ROW, e);
        if (st == SPX_OK && with != SPX_NO_ROW && spx_merge_source_path(m, g, with, base)) {
            (void)snprintf(first, sizeof first, "%s/%s", base, leaf);
            st = spx_merge_same_attr(&m->part[with], &m->part[i], first, path, "units", e);
        }
        if (st == SPX_OK)
            st = check_units(&m->part[i], path, it, e);
        if (st != SPX_OK)
            return st;
        const int more = it->per[0] != '\0' && found.ndim == it->ndim + 1; /* a row of values for each */
        if (it->ndim > 0 && it->ndim != found.ndim && !more)
            return spx_fail_at(e, SPX_EINPUT, m->part[i].name, path, NULL, "has %d dimensions, should have %d",
                               found.ndim, it->ndim);
        if (it->ndim == found.ndim && strcmp(it->dim[it->ndim - 1], "nwave") == 0 &&
            found.dims[found.ndim - 1] != g->nwave)
            return spx_fail_at(e, SPX_EINPUT, m->part[i].name, path, NULL,
                               "has %zu bins, but there are %zu wavelengths", found.dims[found.ndim - 1], g->nwave);
        if (with == SPX_NO_ROW)
            with = i;
    }
    if (with == SPX_NO_ROW && !(mask && missing))
        return SPX_OK;
    if (with != SPX_NO_ROW && without != SPX_NO_ROW && !mask)
        return spx_fail(e, SPX_EINPUT, "%s:%s/%s: is missing, but %s has it: make the inputs with the same options",
                        m->part[without].name, g->path, leaf, m->part[with].name);
    spx_merge_dataset *d = add_dataset(m, gi, leaf, e);
    if (d == NULL)
        return SPX_EIO;
    found.group = d->group;
    memcpy(found.leaf, d->leaf, sizeof found.leaf);
    *d = found;
    if (with == SPX_NO_ROW) {
        d->create = 1;
        d->ndim = 2;
        d->dims[1] = g->nwave;
        d->size = 4;
    }
    d->dims[0] = m->nout;
    return SPX_OK;
}

/* 1 when row r of the product lacks this group. */
static int row_missing(const spx_merge *m, const spx_merge_group *g, const char *has, size_t r)
{
    spx_merge_origin o = spx_merge_row_origin(m, g, r);
    return o.part == SPX_NO_ROW || !has[o.part];
}

static spx_status plan_group(spx_merge *m, size_t gi, spx_err *e)
{
    spx_merge_group *g = &m->groups[gi];
    char *has = spx_alloc(m->npart, 1, e), base[PATH_LEN], first[PATH_LEN];
    spx_status st = has == NULL ? SPX_EIO : SPX_OK;
    g->first = SPX_NO_ROW;
    for (size_t i = 0; i < m->npart && st == SPX_OK; i++) {
        has[i] = (char)spx_merge_source_path(m, g, i, base);
        if (!has[i])
            continue;
        if (g->first == SPX_NO_ROW) {
            g->first = i;
            memcpy(first, base, sizeof first);
        }
        st = spx_merge_same_wavelength(&m->part[g->first], &m->part[i], first, base, &g->nwave, &g->per_row, e);
    }
    int missing = 0;
    for (size_t r = 0; r < m->nout && st == SPX_OK; r++)
        missing |= row_missing(m, g, has, r);
    if (st == SPX_OK && missing && g->per_row)
        st = spx_fail_at(e, SPX_EINPUT, m->part[g->first].name, g->path, "make one file of all in one call of fits2h5",
                         "has a wavelength grid for each spectrum, and there are rows without");
    for (size_t i = 0; i < m->npart && st == SPX_OK && !m->allow_missing && m->by == SPX_MERGE_ROWS; i++)
        if (!has[i])
            st = spx_fail_at(e, SPX_EINPUT, m->part[i].name, g->path, NULL,
                             "is missing, but %s has it: --allow-missing goes on without", m->part[g->first].name);
    spx_free(has);
    size_t n = 0, len = strlen(g->pattern);
    const spx_item *it = spx_schema_items(&n);
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        if (it[i].kind == SPX_ITEM_DATASET && it[i].ndim > 0 &&
            (strcmp(it[i].dim[0], "nspec") == 0 || (g->per_row && it[i].per[0] != '\0')) &&
            strncmp(it[i].path, g->pattern, len) == 0 && it[i].path[len] == '/' &&
            strchr(it[i].path + len + 1, '/') == NULL && it[i].path[len + 1] != '<')
            st = plan_dataset(m, gi, &it[i], it[i].path + len + 1, missing, e);
    return st;
}

/* Lists the objects of an input that are not copied. */
static spx_status note_left_out(spx_merge *m, const spx_merge_input *p, spx_err *e)
{
    static const char *const kept[] = {"frame", "spectra", "rvfit", "fibermap", "scores", "exp_fibermap", "provenance"};
    size_t n = 0;
    char **names = NULL, path[PATH_LEN + 256];
    spx_status st = spx_h5_list(p->file, "/", &n, &names, e);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        int known = 0;
        for (size_t k = 0; k < sizeof kept / sizeof *kept; k++)
            known |= strcmp(names[i], kept[k]) == 0;
        if (strcmp(names[i], "rvfit") == 0 && !m->blocks[RVFIT])
            known = 0;
        (void)snprintf(path, sizeof path, "/%.250s", names[i]);
        H5O_info_t info; /* a named type shared by attributes is no content */
        if (!known && H5Oget_info_by_name2(p->file, path, &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0 &&
            info.type == H5O_TYPE_NAMED_DATATYPE)
            known = 1;
        if (!known)
            st = spx_merge_leave_out(m, p, path, e);
    }
    spx_h5_names_free(n, names);
    /* objects in groups, except those with a row a spectrum in the schema */
    for (size_t a = 0; a < p->narm && st == SPX_OK; a++) {
        if ((st = spx_h5_list(p->file, p->arms[a].path, &n, &names, e)) != SPX_OK)
            return st;
        for (size_t i = 0; i < n && st == SPX_OK; i++) {
            int known = strcmp(names[i], "wavelength") == 0 || strcmp(names[i], "header") == 0 ||
                        (m->model && strcmp(names[i], "model") == 0) ||
                        (m->by == SPX_MERGE_CAMERAS && strcmp(names[i], "fiber") == 0);
            for (size_t k = 0; k < m->ndataset; k++)
                known |= strcmp(m->datasets[k].leaf, names[i]) == 0 &&
                         strcmp(m->groups[m->datasets[k].group].arm, p->arms[a].name) == 0;
            (void)snprintf(path, sizeof path, "%s/%.200s", p->arms[a].path, names[i]);
            if (!known)
                st = spx_merge_leave_out(m, p, path, e);
        }
        spx_h5_names_free(n, names);
    }
    return st;
}

/* Plans the sum of model images of fibre subsets: every input must have one of the same size. */
static spx_status plan_model(spx_merge *m, spx_err *e)
{
    size_t dims[SPX_H5_MAXDIM], want[2] = {0, 0};
    int ndim;
    m->model = 0;
    if (m->by != SPX_MERGE_FIBERS)
        return SPX_OK;
    for (size_t i = 0; i < m->npart; i++) {
        if (!spx_h5_exists(m->part[i].file, "/frame/model"))
            return SPX_OK;
        spx_status st = spx_h5_shape(m->part[i].file, "/frame/model", &ndim, dims, e);
        if (st != SPX_OK)
            return st;
        if (ndim != 2 || (i > 0 && (dims[0] != want[0] || dims[1] != want[1])))
            return spx_fail_at(e, SPX_EINPUT, m->part[i].name, "/frame/model", NULL, "has another shape than in %s",
                               m->part[0].name);
        want[0] = dims[0];
        want[1] = dims[1];
    }
    m->model = 1;
    return SPX_OK;
}

/* Adds a word to a list separated by blanks, unless it is in it. */
static void add_word(char text[FLAG_LEN], const char *word, size_t len)
{
    size_t used = strlen(text);
    if (spx_merge_has_word(text, word, len))
        return;
    if (used + len + 2 < FLAG_LEN)
        (void)snprintf(text + used, FLAG_LEN - used, "%s%.*s", used > 0 ? " " : "", (int)len, word);
}

/* Names of the arms that row r of the product lacks, separated by blanks, with those flagged by an earlier merge. */
static void missing_text(const spx_merge *m, const char *const *has, size_t r, char text[FLAG_LEN])
{
    text[0] = '\0';
    for (size_t g = 0; g < m->ngroup; g++) {
        spx_merge_origin o = spx_merge_row_origin(m, &m->groups[g], r);
        if (o.part == SPX_NO_ROW || !has[g][o.part])
            add_word(text, m->groups[g].arm, strlen(m->groups[g].arm));
    }
    for (size_t i = 0; i < m->npart; i++) {
        size_t row = m->where != NULL ? m->where[i][r] : m->ref[r].part == i ? m->ref[r].row : SPX_NO_ROW;
        if (row == SPX_NO_ROW || m->part[i].flagged == NULL)
            continue;
        for (const char *p = m->part[i].flagged[row]; *p != '\0'; p += *p == ' ') {
            size_t n = strcspn(p, " ");
            if (n > 0)
                add_word(text, p, n);
            p += n;
        }
    }
}

spx_status spx_merge_missing_texts(const spx_merge *m, char (**out)[FLAG_LEN], size_t *nmissing, spx_err *e)
{
    char **has = spx_alloc(m->ngroup, sizeof *has, e), base[PATH_LEN];
    spx_status st = has == NULL ? SPX_EIO : SPX_OK;
    for (size_t g = 0; g < m->ngroup && st == SPX_OK; g++) {
        if ((has[g] = spx_alloc(m->npart, 1, e)) == NULL)
            st = SPX_EIO;
        for (size_t i = 0; i < m->npart && st == SPX_OK; i++)
            has[g][i] = (char)spx_merge_source_path(m, &m->groups[g], i, base);
    }
    *nmissing = 0;
    if (st == SPX_OK && (*out = spx_alloc(m->nout, sizeof **out, e)) == NULL)
        st = SPX_EIO;
    for (size_t r = 0; r < m->nout && st == SPX_OK; r++) {
        missing_text(m, (const char *const *)has, r, (*out)[r]);
        *nmissing += (*out)[r][0] != '\0';
    }
    for (size_t g = 0; has != NULL && g < m->ngroup; g++)
        spx_free(has[g]);
    spx_free(has);
    return st;
}

spx_status spx_merge_plan(size_t n, const spx_merge_part *part, const spx_merge_options *opt, spx_merge **out,
                          spx_err *e)
{
    *out = NULL;
    spx_merge *m = spx_alloc(1, sizeof *m, e);
    if (m == NULL)
        return SPX_EIO;
    spx_status st = n > 0 ? SPX_OK : spx_fail(e, SPX_EINPUT, "no input is left to join");
    m->by = opt->by;
    m->allow_missing = opt->allow_missing;
    m->allow_repeated = opt->allow_repeated;
    if (st == SPX_OK && (m->part = spx_alloc(n, sizeof *m->part, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < n && st == SPX_OK && !opt->allow_repeated; i++)
        for (size_t k = 0; k < i && st == SPX_OK; k++)
            if (part[i].ino != 0 && part[i].ino == part[k].ino && part[i].dev == part[k].dev)
                st = spx_fail(e, SPX_EINPUT,
                              "%s: is there twice: give each file once; --allow repeated keeps its rows several times",
                              part[i].name);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        m->part[i].file = part[i].file;
        m->part[i].name = part[i].name;
        m->npart = i + 1;
        st = spx_merge_read_input(&m->part[i], e);
        for (int b = 0; b < NBLOCK && st == SPX_OK && i > 0; b++) {
            char path[32];
            (void)snprintf(path, sizeof path, "/%s", spx_merge_block_name[b]);
            if (m->part[i].has[b] && m->part[0].has[b])
                st = spx_merge_same_version(&m->part[0], &m->part[i], path, path, e);
        }
    }
    if (st == SPX_OK && m->by == SPX_MERGE_AUTO)
        st = spx_merge_recognise(m, e);
    if (st == SPX_OK)
        st = m->by == SPX_MERGE_FIBERS    ? spx_merge_plan_fibers(m, opt, e)
             : m->by == SPX_MERGE_CAMERAS ? spx_merge_plan_cameras(m, e)
                                          : spx_merge_plan_rows(m, e);
    if (st == SPX_OK) {
        m->blocks[FRAME] = m->part[0].has[FRAME] && m->by != SPX_MERGE_CAMERAS;
        m->blocks[SPECTRA] = m->by == SPX_MERGE_CAMERAS || m->part[0].has[SPECTRA];
        m->blocks[RVFIT] = m->part[0].has[RVFIT] && m->by == SPX_MERGE_ROWS;
        st = plan_groups(m, e);
    }
    for (size_t g = 0; g < m->ngroup && st == SPX_OK; g++)
        st = plan_group(m, g, e);
    if (st == SPX_OK)
        st = plan_model(m, e);
    for (size_t i = 0; i < m->npart && st == SPX_OK; i++)
        st = note_left_out(m, &m->part[i], e);
    char(*text)[FLAG_LEN] = NULL;
    if (st == SPX_OK)
        st = spx_merge_missing_texts(m, &text, &m->nmissing, e);
    spx_free(text);
    if (st != SPX_OK) {
        spx_merge_free(m);
        return st;
    }
    *out = m;
    return SPX_OK;
}

void spx_merge_free(spx_merge *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->npart; i++) {
        spx_free(m->part[i].fiber);
        spx_free(m->part[i].target);
        spx_free(m->part[i].index);
        spx_free(m->part[i].flagged);
        spx_cards_free(&m->part[i].header);
        if (m->where != NULL)
            spx_free(m->where[i]);
    }
    spx_free(m->where);
    spx_free(m->part);
    spx_free(m->ref);
    spx_free(m->key);
    spx_free(m->groups);
    spx_free(m->datasets);
    spx_text_free(&m->left_out);
    spx_free(m);
}

spx_merge_by spx_merge_kind(const spx_merge *m)
{
    return m->by;
}

const char *spx_merge_product(const spx_merge *m)
{
    return m->blocks[RVFIT] ? "rvfit" : m->blocks[SPECTRA] ? "spectra" : "frame";
}

size_t spx_merge_nrow(const spx_merge *m)
{
    return m->nout;
}

size_t spx_merge_nmissing(const spx_merge *m)
{
    return m->nmissing;
}

const char *spx_merge_left_out(const spx_merge *m)
{
    return m->left_out.s;
}

size_t spx_merge_steps(const spx_merge *m)
{
    return m->ndataset;
}
