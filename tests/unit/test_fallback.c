/* Checks reports of work that a device leaves to the CPU (spx_run_fallback()): a warning where --device names the
 * device and a detail with `auto`, in the provenance and, summed over all products, in the last line; without such work
 * nothing is reported, and the product has the same bytes as without the call. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/main.h"
#include "check.h"
#include "h5/provenance.h"

static char folder[] = "/tmp/test_fallback.XXXXXX", text[8192];
static size_t on_cpu[2], ncall; /* bundles of each call */
static const char *computed = "cuda:0 (a device)";

/* A program whose only product records what two stage calls left to the CPU. */
static spx_status run(spx_run *s, spx_err *err)
{
    hid_t file;
    spx_status st = spx_run_output(s, "image", &file, err);
    spx_run_device(s, computed);
    for (size_t i = 0; i < ncall && st == SPX_OK; i++) {
        const spx_fallback f = {.unit = "bundles", .reason = "because", .total = 10, .on_cpu = on_cpu[i]};
        st = spx_run_fallback(s, "frame: ", &f, err);
    }
    return st == SPX_OK ? spx_run_commit(s, err) : st;
}

/* Runs it in a process of its own; what it says is in `text`. */
static void run_program(const char *device, const char *verbosity, const char *output)
{
    static const spx_program program = {
        .name = "program", .summary = "", .usage = "", .flags = SPX_USES_DEVICE | SPX_IN_OPTIONAL, .run = run};
    char *argv[] = {"program",        "--device", (char *)device,    "-o", (char *)output,
                    "--reproducible", "-f",       (char *)verbosity, NULL};
    int status;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (freopen("log", "w", stderr) == NULL)
            _exit(99);
        const int rc = spx_main(&program, 8, argv);
        (void)fflush(NULL);
        _exit(rc);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    FILE *log = fopen("log", "r");
    CHECK(log != NULL);
    text[fread(text, 1, sizeof text - 1, log)] = '\0';
    (void)fclose(log);
    if (WEXITSTATUS(status) != 0)
        puts(text);
    CHECK(WEXITSTATUS(status) == 0);
}

static size_t read_bytes(const char *name, char *to, size_t size)
{
    FILE *f = fopen(name, "rb");
    CHECK(f != NULL);
    const size_t n = fread(to, 1, size, f);
    (void)fclose(f);
    return n;
}

static void check_record(const char *name, const char *line)
{
    char options[4096];
    const hid_t file = H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT);
    CHECK(file >= 0 && spx_provenance_count(file) == 1);
    (void)spx_provenance_field(file, 0, "option", options, sizeof options);
    CHECK(line != NULL ? strstr(options, line) != NULL : strstr(options, "on_cpu") == NULL);
    (void)H5Fclose(file);
}

int main(void)
{
    static const char said[] = "bundles were computed on the CPU: because";
    static char one[1 << 20], two[1 << 20];
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);

    ncall = 2;
    on_cpu[0] = 3;
    run_program("cuda:0", "--no-verbose", "x.h5");
    CHECK(strstr(text, "warning: frame: --device cuda:0: 3 of 10 bundles were computed on the CPU: because\n") != NULL);
    check_record("x.h5", "bundles_on_cpu=3");
    on_cpu[1] = 4;
    run_program("cuda", "-v", "x.h5");
    CHECK(strstr(text, "3 of 10 bundles were") != NULL && strstr(text, "4 of 10 bundles were") != NULL);
    CHECK(strstr(text, "of memory at most, 7 of 20 bundles on the CPU\n") != NULL);
    run_program("auto", "--no-verbose", "x.h5");
    CHECK(text[0] == '\0');
    check_record("x.h5", "bundles_on_cpu=4");
    run_program("auto", "-v", "x.h5");
    CHECK(strstr(text, said) != NULL && strstr(text, "warning") == NULL && strstr(text, "7 of 20 bundles") != NULL);

    on_cpu[0] = on_cpu[1] = 0;
    run_program("cuda", "-v", "x.h5");
    CHECK(strstr(text, "bundles") == NULL && strstr(text, "of memory at most\n") != NULL);
    check_record("x.h5", NULL);
    const size_t n = read_bytes("x.h5", one, sizeof one);
    ncall = 0;
    run_program("cuda", "-v", "x.h5");
    CHECK(n > 0 && n < sizeof one && read_bytes("x.h5", two, sizeof two) == n && memcmp(one, two, n) == 0);

    /* which of the devices, and how many */
    static const struct {
        const char *option, *computed;
    } place[] = {{"cuda:3", "cuda:3 (a device)"}, {"cuda:1,2", "cuda:1 (a device), cuda:2 (a device)"}};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
        char device[64];
        computed = place[i].computed;
        run_program(place[i].option, "-v", "x.h5");
        CHECK(read_bytes("x.h5", two, sizeof two) == n && memcmp(one, two, n) == 0);
        const hid_t file = H5Fopen("x.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
        CHECK(spx_provenance_field(file, 0, "device", device, sizeof device) && strcmp(device, "cuda (a device)") == 0);
        (void)H5Fclose(file);
    }

    CHECK(remove("x.h5") == 0 && remove("log") == 0 && chdir("/") == 0 && rmdir(folder) == 0);
    return 0;
}
