# specpipe: one non-recursive Makefile. `make help` lists the targets; config.mk (if there) overrides variables.
#
# Needs: a C11 compiler, HDF5 with HL, OpenBLAS with LAPACKE, FFTW3, ERFA, Qhull, zlib, xxHash, and CFITSIO for the tests:
# share/packages.debian lists their packages, ./bootstrap installs them.

VERSION  := $(shell cat VERSION)
# A comma that is part of an argument.
, := ,
CC       ?= cc
BUILD    ?= build
PREFIX   ?= /usr/local
DESTDIR  ?=
# DEBUG=1 builds for a debugger: no optimisation, full debug information, assertions in CUDA kernels; in a BUILD folder of
# its own if you like.
OPT      ?= $(if $(DEBUG),-O0 -g3,-O2 -g)
# clang warns where it cannot vectorise a loop with `omp simd`, which then is slower, but correct.
WARN      = -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wconversion \
            -Wno-sign-conversion $(if $(findstring clang,$(CC)),-Wno-pass-failed) $(WERROR)
# Warnings stop the builds of `make check` (tests/check.sh) and those of WERROR=-Werror; a newer compiler may know more of them.
WERROR   ?=
-include config.mk
# By its absolute path it is the same folder: dependencies that compilers have written name it as it was called.
override BUILD := $(patsubst $(CURDIR)/%,%,$(BUILD))

# CUDA is found by itself when nvcc is there; `make NVCC=` builds without.
NVCC     ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
# CUDA_LINES=1: kernels know their lines of source, for compute-sanitizer and ncu. The driver unpacks these, too, before it
# launches the first one: 30 to 40 ms.
NVCCFLAGS ?= $(if $(DEBUG),-G -O0,-O3$(if $(CUDA_LINES), -lineinfo))
CU_ARCH  ?= $(foreach a,80 90,-gencode arch=compute_$a,code=sm_$a) -gencode arch=compute_90,code=compute_90

PKG_CONFIG ?= pkg-config
# Debian's HDF5 calls its pkg-config file hdf5-serial or hdf5, by release.
HDF5_PC  := $(firstword $(foreach p,hdf5-serial hdf5,$(if $(shell $(PKG_CONFIG) --exists $(p) 2>/dev/null && echo y),$(p))))
# BARE=1, for `make check-cuda`: without CFITSIO, ERFA (barycentric correction) and Qhull.
BARE      ?=
PKGS      := $(or $(HDF5_PC),hdf5) $(if $(BARE),,erfa qhull_r libxxhash) openblas lapacke fftw3 fftw3f zlib
# libxxhash: headers alone, which inline its functions; BARE=1 does without where it is absent.
LIB_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null)
# OpenBLAS and LAPACKE are loaded when they are needed (num/blas.h).
LIB_LIBS   := $(shell $(PKG_CONFIG) --exists $(PKGS) 2>/dev/null && \
              $(PKG_CONFIG) --libs $(filter-out openblas lapacke libxxhash,$(PKGS)))
ifeq ($(LIB_LIBS)$(filter clean help uninstall check-cuda release archive,$(MAKECMDGOALS)),)
$(error Libraries are missing ($(shell $(PKG_CONFIG) --print-errors --exists $(PKGS) 2>&1)): run ./bootstrap)
endif
LDLIBS     ?=
# CFITSIO makes FITS files for the tests, and is what our decoding is compared with.
TEST_CFLAGS := $(if $(BARE),,$(shell $(PKG_CONFIG) --cflags cfitsio 2>/dev/null))
TEST_LIBS  := $(if $(BARE),,$(shell $(PKG_CONFIG) --libs cfitsio 2>/dev/null))
ALL_LIBS   = $(patsubst -lhdf5,-lhdf5_hl -lhdf5,$(LIB_LIBS)) -lm -ldl -lpthread $(LDLIBS)
# PORTABLE=1, for `make portable`: libraries are part of each program and hidden from plug-ins (h5py has an HDF5 of its own);
# those that are loaded (OpenBLAS, LAPACKE, OpenMP) are looked for beside it. Nothing depends on the folder of the build.
PORTABLE  ?=
ifneq ($(PORTABLE),)
STATIC     = $(patsubst -lqhull_r,-lqhullstatic_r,$(patsubst -lhdf5,-lhdf5_hl -lhdf5,$(LIB_LIBS))) -lsz -laec -lz
ALL_LIBS   = -Wl,-Bstatic $(STATIC) -Wl,-Bdynamic -lm -ldl -lpthread $(LDLIBS)
PORTABLE_CFLAGS  = -g0 -ffile-prefix-map=$(CURDIR)/=
PORTABLE_LDFLAGS = $(patsubst -l%,-Wl$(,)--exclude-libs$(,)lib%.a,$(filter -l%,$(STATIC))) \
                   -Wl,--disable-new-dtags,-rpath,\$$ORIGIN/../lib/specpipe/private
endif

# `make V=1` shows the commands, `make -s` nothing.
Q         = $(if $(V),,@)
SILENT    = $(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS))))
say       = $(if $(V)$(SILENT),,@echo '  $1' $(@:$(BUILD)/%=%))
SAN       ?=
# H5_USE_110_API: HDF5 1.12 and later have other types behind the same names (H5O_info_t).
CPPFLAGS  += -D_GNU_SOURCE -DH5_USE_110_API -DSPX_VERSION='"$(VERSION)"' \
             -Ilibcommon -Ikernels -Itools $(if $(BARE),-DSPX_BARE) $(if $(DEBUG),-DSPX_DEBUG)
ALL_CFLAGS = -std=c11 $(OPT) $(WARN) -fopenmp -ffp-contract=off -fno-math-errno $(SAN) $(CPPFLAGS) $(LIB_CFLAGS) \
             $(PORTABLE_CFLAGS) $(CFLAGS)
# -rdynamic: a backend that is loaded at run time uses the library inside the program.
ALL_LDFLAGS = -fopenmp -rdynamic $(SAN) $(PORTABLE_LDFLAGS) $(LDFLAGS)

# tools/TEMPLATE.c is where a new program starts from: built with the tests, never installed.
TOOLS     := $(filter-out TEMPLATE,$(sort $(patsubst tools/%.c,%,$(wildcard tools/*.c))))
LIB_SRC   := $(filter-out $(if $(BARE),$(shell grep -l '<erfa.h>' libcommon/*/*.c)), \
             $(sort $(wildcard $(addsuffix /*.c,libcommon/* libcommon/*/* kernels kernels/* kernels/*/* tools/common))))
LIB_OBJ   := $(LIB_SRC:%.c=$(BUILD)/obj/%.o) $(BUILD)/obj/gen/schemas.o
LIB       := $(BUILD)/lib/libspecpipe.a
BIN       := $(TOOLS:%=$(BUILD)/bin/%)
CTESTS    := $(sort $(patsubst tests/%.c,%,$(wildcard tests/unit/test_*.c tests/kernels/test_*.c)))
CTEST_BIN := $(CTESTS:%=$(BUILD)/tests/%)
# Kernels of a GPU on an emulated one (tests/cuda/emulate/cuda_runtime.h): by g++, whose OpenMP is not that of clang.
EMULATED  := $(if $(SAN)$(findstring clang,$(CC))$(filter-out x86_64,$(shell uname -m)),,kernels/test_extract_emulated kernels/test_psffit_emulated)
FUZZ      := $(sort $(patsubst tests/%.c,%,$(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_BIN  := $(FUZZ:%=$(BUILD)/tests/%)
# Programs that the Bats files use: to compare products, to damage files.
HELPERS   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(sort $(wildcard tests/helpers/*.c)))
# Preloaded by tests/trust/run.sh to make calls fail; sanitizers replace the same calls.
INJECT    := $(if $(SAN),,$(BUILD)/tests/trust/inject.so)
# A backend that computes on the CPU under the names of GPUs, and the driver that it has none of.
STANDIN   := $(addprefix $(BUILD)/tests/standin/,backend-cuda.so libcuda.so.1)
EXAMPLES  := $(patsubst tools/%.c,$(BUILD)/bin/%,$(wildcard tools/TEMPLATE.c))
SCHEMAS   := $(sort $(wildcard schemas/*.schema))
MAN       := $(patsubst man/%.in,$(BUILD)/man/%,$(sort $(wildcard man/*.in)))
CU_SRC    := $(if $(NVCC),$(sort $(wildcard kernels/*.cu kernels/*/*.cu kernels/*/*/*.cu)))
CU_OBJ    := $(CU_SRC:%.cu=$(BUILD)/obj/%.cu.o)
PLUGIN    := $(if $(CU_SRC),$(BUILD)/lib/specpipe/backend-cuda.so $(BUILD)/lib/specpipe/backend-cuda-svd.so)
# Hooks in Python (--hook) are built when its headers are there; `make PYTHON_CFLAGS=` builds without.
PYTHON_CFLAGS ?= $(shell $(PKG_CONFIG) --cflags python3 2>/dev/null)
# The backend under a CUDA runtime whose calls can be made to fail (tests/trust/cuda.bash).
CUDA_FAULTS := $(if $(PLUGIN),$(if $(SAN),,$(addprefix $(BUILD)/tests/trust/,cuda_faults.so cuda/backend-cuda.so cuda/backend-cuda-svd.so)))
HOOK      := $(if $(strip $(PYTHON_CFLAGS)),$(BUILD)/lib/specpipe/hook-python.so)

.PHONY: all lib tests man plugin
.DELETE_ON_ERROR:
.SECONDARY:

## all: programs, manual pages, hooks where Python's headers are, the CUDA backend where nvcc is (default)
all: $(BIN) $(MAN) $(HOOK) $(PLUGIN)

## programs: only the programs
.PHONY: programs
programs: $(BIN)

# Changing the flags rebuilds everything.
FLAGS = $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(ALL_LIBS) $(NVCC) $(NVCCFLAGS) $(CU_ARCH)
$(BUILD)/flags: FORCE
	@mkdir -p $(BUILD)
	@echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' > $@
.PHONY: FORCE
FORCE:

# `private`: the flags of these objects must not apply to their prerequisites (the flags file).
# Loops that are compiled for several instruction sets; which of them runs is decided at run time. Products and sums
# may be fused there: the tolerance of the method covers it. NAME_base.c has NAME_avx2.c and NAME_avx512.c beside it.
LANES = $(patsubst %base.c,$(BUILD)/obj/%,$(wildcard kernels/*/*_base.c kernels/*/*/*_base.c tests/kernels/*_base.c))
# Bands of up to 20 elements as straight code (calib/root_lanes.h): gcc's limits of that end at 16, and it then takes 1.5
# times as long.
ROOT_LANES = $(filter $(BUILD)/obj/kernels/extract/trace/% $(BUILD)/obj/kernels/coadd/%,$(LANES))
$(ROOT_LANES:=base.o) $(ROOT_LANES:=avx2.o) $(ROOT_LANES:=avx512.o): private ALL_CFLAGS += \
    $(if $(findstring clang,$(CC)),,--param max-completely-peel-times=20 --param max-completely-peeled-insns=300)
ifeq ($(shell uname -m),x86_64)
$(LANES:=avx2.o): private ALL_CFLAGS += -mavx2 -mfma
$(LANES:=avx512.o): private ALL_CFLAGS += -mavx512f -mavx512dq -mavx2 -mfma -mprefer-vector-width=512
endif
$(LANES:=base.o) $(LANES:=avx2.o) $(LANES:=avx512.o): private ALL_CFLAGS += $(if $(SAN)$(DEBUG),,-O3) -ffp-contract=fast

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The schema texts are the only definition of the products: they are compiled in as they stand.
$(BUILD)/gen/schemas.c: $(SCHEMAS) share/embed.awk
	@mkdir -p $(@D)
	$(Q)LC_ALL=C awk -f share/embed.awk $(SCHEMAS) > $@

$(LIB): $(LIB_OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $^

# ABI checksum of a backend and the program that loads it (kernels/backend.h): over the headers of both.
ABI_SUM := $(shell cat $(sort $(wildcard $(addsuffix /*.h,libcommon/* libcommon/*/* kernels kernels/* kernels/*/*) \
                   kernels/cuda/*.cuh kernels/*.def)) | cksum | cut -d ' ' -f 1)
$(BUILD)/abi: FORCE
	@mkdir -p $(BUILD)
	@echo '$(ABI_SUM)' | cmp -s - $@ || echo '$(ABI_SUM)' > $@
ABI_OBJ = $(BUILD)/obj/kernels/backend.o $(BUILD)/obj/kernels/backend_cuda.cu.o
$(ABI_OBJ): $(BUILD)/abi
$(ABI_OBJ): private CPPFLAGS += -DSPX_ABI_SUM=$(ABI_SUM)u

## lib: only the library that programs and tests are linked with
lib: $(LIB)

$(BUILD)/bin/%: $(BUILD)/obj/tools/%.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(LIB) $(ALL_LIBS)

# Fuzz targets are libFuzzer's; here their corpus is fed to them by a plain main().
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/obj/tests/fuzz/driver.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(BUILD)/obj/tests/fuzz/driver.o $(LIB) $(ALL_LIBS)

# The same with libFuzzer itself (`make fuzz`).
$(BUILD)/tests/fuzz/search_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $< $(LIB) $(ALL_LIBS)

$(BUILD)/obj/tests/unit/%.o $(BUILD)/obj/tests/helpers/%.o: private CPPFLAGS += $(TEST_CFLAGS)
$(BUILD)/tests/kernels/test_simd: $(addprefix $(BUILD)/obj/tests/kernels/simd_,base.o avx2.o avx512.o)
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(LIB) $(ALL_LIBS) $(TEST_LIBS)

# A file of cases for each operation (kernels/operations.def).
OPS       := $(patsubst %.c,$(BUILD)/obj/%.o,$(sort $(wildcard tests/kernels/op_*.c)))
$(BUILD)/tests/kernels/test_backend_ops: $(BUILD)/obj/tests/kernels/test_backend_ops.o $(OPS) $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(LIB) $(ALL_LIBS)

## tests: C tests, fuzz targets, the tests' helpers and benchmarks, built but not run
BENCH_BIN := $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/bench/bench_*.c))
tests: $(BENCH_BIN) $(CTEST_BIN) $(EMULATED:%=$(BUILD)/tests/%) $(FUZZ_BIN) $(HELPERS) $(INJECT) $(STANDIN) $(CUDA_FAULTS) $(EXAMPLES)

$(BUILD)/tests/trust/inject.so: $(foreach f,inject.c sweep.c sweep.h turns.c turns.h,tests/trust/$f) $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -fPIC -shared -o $@ $(filter %.c,$^) -ldl

$(STANDIN): tests/standin/backend.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -fPIC -shared $(SAN) -o $@ $<

# ---- CUDA backend: loaded at run time, so the programs do not depend on it ----

## plugin: the CUDA backend
plugin: $(PLUGIN)

$(BUILD)/obj/%.cu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,NVCC)
	$(Q)$(NVCC) -std=c++17 $(NVCCFLAGS) $(CU_ARCH) -fmad=false -Xcompiler -fPIC,-Wall,-Wextra,-fopenmp $(patsubst -W%,-Xcompiler -W%,$(CPPFLAGS)) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

# The backend with cuBLAS and cuSOLVER is a plug-in of its own: they take longer to load than everything else.
CU_SVD    := $(BUILD)/obj/kernels/svd/svd_cuda.cu.o

$(BUILD)/lib/specpipe/backend-cuda.so: $(filter-out $(CU_SVD),$(CU_OBJ))
	@mkdir -p $(@D)
	$(call say,NVCC)
	$(Q)$(NVCC) -shared $(CU_ARCH) -o $@ $^

$(BUILD)/lib/specpipe/backend-cuda-svd.so: $(CU_SVD)
	@mkdir -p $(@D)
	$(call say,NVCC)
	$(Q)$(NVCC) -shared $(CU_ARCH) -o $@ $^ -lcublas -lcusolver

$(BUILD)/tests/trust/cuda_faults.so: tests/trust/cuda_faults.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,NVCC)
	$(Q)$(NVCC) -std=c++17 -O1 -Xcompiler -fPIC,-Wall,-Wextra -shared --cudart none -o $@ $< -ldl

$(BUILD)/tests/trust/cuda/backend-cuda.so: $(filter-out $(CU_SVD),$(CU_OBJ))
$(BUILD)/tests/trust/cuda/backend-cuda-svd.so: $(CU_SVD)
$(BUILD)/tests/trust/cuda/%.so:
	@mkdir -p $(@D)
	$(call say,NVCC)
	$(Q)$(NVCC) -shared --cudart none $(CU_ARCH) -o $@ $^ $(if $(findstring svd,$*),-lcublas -lcusolver)

# ---- an emulated GPU: kernels as C++ ----

EMULATE     := tests/cuda/emulate
EMULATE_SRC := $(patsubst kernels/%,$(BUILD)/gen/emulate/%,$(wildcard kernels/cuda/*.cuh kernels/calib/*.cuh kernels/extract/cuda/*.cu* kernels/psffit/cuda/*.cu*))
EMULATE_CXX  = $(CXX) -std=c++17 -O2 $(WERROR) -mavx2 -mfma -ffp-contract=off -fopenmp -Wall -Wno-unknown-pragmas -Wno-sign-compare \
               -I$(BUILD)/gen/emulate -I$(EMULATE) $(CPPFLAGS) $(LIB_CFLAGS) -MMD -MP

$(BUILD)/gen/emulate/%: kernels/% $(EMULATE)/emulate.sed
	@mkdir -p $(@D)
	$(Q)sed -f $(EMULATE)/emulate.sed $< > $@

$(BUILD)/obj/emulate/%_cuda.o: $(EMULATE_SRC) $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX)
	$(Q)$(EMULATE_CXX) -x c++ -c -o $@ $(BUILD)/gen/emulate/$*/cuda/$*_cuda.cu

$(BUILD)/obj/emulate/emulate.o: $(EMULATE)/emulate.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX)
	$(Q)$(EMULATE_CXX) -c -o $@ $<

$(BUILD)/obj/emulate/check_%.o: tests/cuda/check_%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -DSPX_EMULATED -MMD -MP -c -o $@ $<

$(BUILD)/tests/kernels/test_%_emulated: $(BUILD)/obj/emulate/check_%.o $(BUILD)/obj/emulate/%_cuda.o $(BUILD)/obj/emulate/emulate.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $^ $(ALL_LIBS)

# ---- hooks: loaded at run time too, and not linked with Python ----

## hook: the plug-in for --hook
.PHONY: hook
hook: $(HOOK)

$(BUILD)/gen/hook_python_source.c: plugins/hook_python.py share/text.awk
	@mkdir -p $(@D)
	$(Q)LC_ALL=C awk -v name=spx_hook_python_source -f share/text.awk $< > $@

$(BUILD)/lib/specpipe/hook-python.so: plugins/hook_python.c $(BUILD)/gen/hook_python_source.c $(BUILD)/flags
	@mkdir -p $(@D) $(BUILD)/obj/plugins
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) $(patsubst -I%,-isystem %,$(PYTHON_CFLAGS)) -fPIC -shared $(SAN) $(LDFLAGS) -Wl,-z,lazy \
	    -MMD -MP -MF $(BUILD)/obj/plugins/hook_python.d -o $@ $(filter %.c,$^) -ldl

# ---- manual ----

## man: the manual pages
man: $(MAN)

MAN_PAGE = $(Q)LC_ALL=C awk -v version=$(VERSION) -v insert='$1' -f share/man.awk CHANGELOG.md $< > $@

# A program's page: its text, with the OPTIONS that the program prints.
$(BUILD)/man/%.1: man/%.1.in $(BUILD)/bin/% share/man.awk CHANGELOG.md VERSION
	@mkdir -p $(@D)
	$(call MAN_PAGE,$(BUILD)/bin/$* --help=mdoc)

# The definition of the products, from the schemas compiled into h5check.
$(BUILD)/man/%.5: man/%.5.in $(BUILD)/bin/h5check share/man.awk CHANGELOG.md VERSION
	@mkdir -p $(@D)
	$(call MAN_PAGE,$(BUILD)/bin/h5check --schema=mdoc)

# The table of attacks whose results are kept.
$(BUILD)/man/specpipe-trust.7: man/specpipe-trust.7.in tests/trust/results share/trust.awk share/man.awk CHANGELOG.md VERSION
	@mkdir -p $(@D)
	$(call MAN_PAGE,awk -f share/trust.awk tests/trust/results)

# The rules of plausibility, from the table compiled into specpipe-info.
$(BUILD)/man/%.7: man/%.7.in $(BUILD)/bin/specpipe-info share/man.awk CHANGELOG.md VERSION
	@mkdir -p $(@D)
	$(call MAN_PAGE,$(BUILD)/bin/specpipe-info --rules=mdoc)

## html: the documentation as a site, in build/html (manual, tutorial with pictures, methods; needs mandoc and cmark-gfm)
.PHONY: html
html: programs $(MAN) $(BUILD)/tests/helpers/h5edit
	@PATH="$(abspath $(BUILD))/bin:$(abspath $(BUILD))/tests/helpers:$$PATH" share/html/site.sh $(BUILD)/html $(BUILD)/man

# ---- checks ----

# Environment of check.sh and the tests: paths and lists of this build.
CHECK_ENV = MAKE='$(MAKE)' BUILD='$(BUILD)' UNIT='$(filter unit/%,$(CTESTS))' KERNELS='$(filter kernels/%,$(CTESTS))' \
            EMULATED='$(EMULATED)' FUZZ='$(FUZZ)' PLUGIN='$(PLUGIN)'

.PHONY: check check-run asan ubsan lint lint-shell lint-format lint-c lint-man lint-python
## check: build, run every test and the lint; the last line counts (SUITES="unit kernels clang debug sanitize bats cuda lint")
check:
	+@$(CHECK_ENV) tests/check.sh $(SUITES)

# The suites that run what was built with this BUILD, SAN and OPT.
check-run:
	+@$(CHECK_ENV) tests/check.sh unit kernels bats

# Instrumentation causes false warnings of gcc: they do not stop the build.
SAN_MAKE = $(MAKE) OPT='-O1 -g -fno-omit-frame-pointer' WERROR= NVCC=
## asan: all tests of library, kernels and programs under AddressSanitizer, in build/asan
asan:
	+@ASAN_OPTIONS=exitcode=99:detect_stack_use_after_return=0 LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0 $(SAN_MAKE) BUILD=$(BUILD)/asan SAN=-fsanitize=address check-run

## ubsan: the same under UndefinedBehaviorSanitizer, in build/ubsan
ubsan:
	+@UBSAN_OPTIONS=print_stacktrace=1 $(SAN_MAKE) BUILD=$(BUILD)/ubsan \
	    SAN='-fsanitize=undefined -fno-sanitize-recover=all' check-run

## sanitized: programs and C tests under both sanitizers, with memory that can be made to fail, in build/sanitize; not run
.PHONY: sanitized
sanitized:
	+@$(MAKE) BUILD=$(BUILD)/sanitize OPT='-O1 -g1 -fno-omit-frame-pointer' WERROR= NVCC= \
	    SAN='-fsanitize=address,undefined -fno-sanitize-recover=all -DSPX_FAULTS' tests programs hook

C_FILES  = $(wildcard $(addsuffix /*.[ch],tools tools/common plugins libcommon/* libcommon/*/* kernels kernels/* kernels/*/* \
           tests/*) $(wildcard tests/cuda/emulate/*.cpp tests/cuda/emulate/*.h tests/cuda/emulate/*/*.h) tests/trust/cuda_faults.cpp $(addsuffix /*.cu*,kernels kernels/* kernels/*/*) kernels/*/*/*.inc tests/kernels/*.inc)
SH_FILES = bootstrap .ci/run $(wildcard share/*.sh share/*/*.sh share/*/*.bash tests/*.sh tests/*/*.sh tests/*.bash tests/*/*.bash)
CLANG_FORMAT ?= $(firstword $(shell command -v clang-format-14) clang-format)

## lint: lint-shell, lint-format, lint-c, lint-man and lint-python
lint: lint-shell lint-format lint-c lint-man lint-python

## lint-shell: shellcheck of the scripts and the Bats files, and what END of awk programs hides
lint-shell:
	shellcheck $(SH_FILES)
	shellcheck -s bats -S warning -e SC2030,SC2031,SC2154 $(wildcard tests/*.bats tests/*/*.bats)
	awk -f share/awk-end.awk $(SH_FILES) $(wildcard tests/*.bats tests/*/*.bats share/*.awk share/*/*.awk)

## lint-format: C files formatted as .clang-format says (`make format` does it)
lint-format:
	$(CLANG_FORMAT) --dry-run -Werror $(C_FILES)

## format: format the C files
.PHONY: format
format:
	$(CLANG_FORMAT) -i $(C_FILES)

# cppcheck does not see the libraries' headers: findings that depend on them are suppressed.
## lint-c: cppcheck
lint-c:
	@mkdir -p $(BUILD)/cppcheck
	cppcheck --quiet --error-exitcode=1 -j 2 --cppcheck-build-dir=$(BUILD)/cppcheck --std=c11 --platform=unix64 \
	    --enable=warning,portability,performance --inline-suppr --suppressions-list=share/cppcheck.txt \
	    -Ilibcommon -Ikernels -Itools -D_GNU_SOURCE -DH5_USE_110_API -DSPX_VERSION='""' tools libcommon kernels plugins

## lint-man: mandoc's lint of the manual pages
lint-man: $(MAN)
	mandoc -Tlint -W warning $(MAN)

## lint-python: mypy of the Python package
lint-python:
	mypy --config-file python/pyproject.toml --cache-dir $(BUILD)/mypy python/specpipe

# ---- benchmarks ----

BENCHES  := $(BENCH_BIN:$(BUILD)/bench/bench_%=bench-%)

## bench: all benchmarks; bench-stack: one of them (DEVICES="cpu cuda"; PLOT=1: pictures of their curves)
.PHONY: bench $(BENCHES)
bench: $(BENCHES)
$(BENCHES): bench-%: $(BUILD)/bench/bench_% $(if $(findstring cuda,$(DEVICES)),$(PLUGIN))
	$(if $(PLOT),SPX_BENCH_CURVES=$(BUILD)/bench/$*.tsv) $< $(DEVICES)
	$(if $(PLOT),@tests/bench/plot.sh $(BUILD)/bench/$*.tsv $(BUILD)/bench/$*.png)

## bench-calib-queue: queues of shift, flat, sky, flux and coadd, beside what reading takes (PROGRAMS="shift sky" EXPOSURES=8 FIBERS=500 ARM=z DEVICES="cpu cuda")
.PHONY: bench-calib-queue
bench-calib-queue: all $(if $(findstring cuda,$(DEVICES)),$(PLUGIN))
	@PATH="$(abspath $(BUILD))/bin:$$PATH" $(foreach v,PROGRAMS EXPOSURES FIBERS ARM,$(if $($v),$v='$($v)')) \
	    tests/bench/calib-queue.sh $(DEVICES)

# The installed profiler of the two; ncu profiles a few launches from the middle.
NSYS     ?= $(shell command -v nsys)
PROFILER  = $(if $(NSYS),$(NSYS) profile --force-overwrite=true --trace=cuda$(,)nvtx --stats=true, \
            ncu --force-overwrite --clock-control none --nvtx --launch-skip 20 --launch-count 10 --section SpeedOfLight \
            --section Occupancy --section LaunchStats --section MemoryWorkloadAnalysis)

## profile: nsys, or else ncu, over a benchmark on a GPU (STAGE=stack); report in build/profile-stack
.PHONY: profile
profile: $(if $(STAGE),$(BUILD)/bench/bench_$(STAGE)) $(PLUGIN)
	$(if $(STAGE),,$(error make profile STAGE=...: one of $(BENCHES:bench-%=%)))
	$(PROFILER) -o $(BUILD)/profile-$(STAGE) $(BUILD)/bench/bench_$(STAGE) cuda
	$(if $(NSYS),,ncu --import $(BUILD)/profile-$(STAGE).ncu-rep)

# Reference loops of benchmarks are compiled with the best optimisation.
$(BUILD)/obj/tests/bench/%.o: private ALL_CFLAGS += -O3

$(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(LIB) $(ALL_LIBS)

# ---- science tests ----

## check-science: accuracy of velocities, sky and shifts, with figures; takes long
.PHONY: check-science
check-science: programs $(HELPERS)
	SPX_BUILD=$(abspath $(BUILD)) SPX_SHARED=$(abspath $(or $(SPX_SHARED),../shared)) bats tests/science

## check-interop: packages of others read our files, and we theirs (SPX_INTEROP=PYTHON with them; SPX_DESISPEC=CHECKOUT)
.PHONY: check-interop
check-interop: programs $(HELPERS)
	@tests/interop/python.sh $(BUILD)/interop
	SPX_BUILD=$(abspath $(BUILD)) SPX_SHARED=$(abspath $(or $(SPX_SHARED),../shared)) bats tests/interop

## trust: attacks on every program, and their table: hours; CLASSES="write kill" STRIDE=10 for fewer (tests/trust/README)
.PHONY: trust
trust: programs tests
	@SPX_BUILD=$(abspath $(BUILD)) SPX_SHARED=$(abspath $(or $(SPX_SHARED),../shared)) \
	    tests/trust/run.sh $(STRIDE:%=-s %) $(JOBS:%=-j %) $(CLASSES)

## fuzz: search for crashes with clang's libFuzzer: a minute for each target of tests/fuzz (SECONDS_EACH=600 TARGETS="text npz")
.PHONY: fuzz
fuzz: fuzzers
	@SPX_BUILD=$(abspath $(BUILD))/fuzz $(SECONDS_EACH:%=SECONDS_EACH=%) tests/fuzz/search.sh $(TARGETS)

## fuzzers: these targets, in build/fuzz; not run
.PHONY: fuzzers searches
fuzzers:
	+@$(MAKE) BUILD=$(BUILD)/fuzz CC=clang OPT='-O1 -g1 -fno-omit-frame-pointer' WERROR= NVCC= \
	    SAN='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all' searches
searches: $(patsubst fuzz/fuzz_%,$(BUILD)/tests/fuzz/search_%,$(FUZZ))

# ---- truth test ----

## truth: from images to velocities against what was put in: report and pictures in build/truth (CASES="flat coadd" TRUTH_SEEDS=1:2)
.PHONY: truth
truth: programs $(HELPERS)
	@PATH="$(abspath $(BUILD))/bin:$(abspath $(BUILD))/tests/helpers:$$PATH" \
	    SPX_SHARED=$(abspath $(or $(SPX_SHARED),../shared)) tests/truth.sh $(BUILD)/truth $(CASES)

# ---- tests on a GPU ----

# Kernel tests that run on the device that SPX_TEST_DEVICE names, and those of CUDA alone.
CUDA_TESTS = $(shell grep -l -e open_device -e rv_test tests/kernels/test_*.c | sed 's|^tests/||; s|\.c$$||') \
             $(patsubst tests/%.c,%,$(wildcard tests/cuda/check_*.c))

## check-cuda: the tests on this machine's GPU; needs no CFITSIO, ERFA, Qhull (TESTS='test_rvfit*'; SANITIZE=memcheck|racecheck|initcheck)
.PHONY: check-cuda cuda-tests
check-cuda:
	+@$(MAKE) BUILD=$(BUILD)/cuda BARE=1 CUDA_LINES=1 cuda-tests
	@SANITIZE='$(SANITIZE)' tests/cuda/run.sh $(BUILD)/cuda $(TESTS:%='%')

## cuda-tests: what check-cuda runs, built but not run (tests/cuda/run.sh $(BUILD) runs it, on a machine without compiler)
cuda-tests: $(PLUGIN) $(HOOK) $(CUDA_TESTS:%=$(BUILD)/tests/%)

$(BUILD)/tests/cuda/check_extract: $(BUILD)/obj/kernels/extract/cuda/extract_cuda.cu.o
$(BUILD)/tests/cuda/check_psffit: $(BUILD)/obj/kernels/psffit/cuda/psffit_cuda.cu.o
$(BUILD)/tests/cuda/check_%: $(BUILD)/obj/tests/cuda/check_%.o $(LIB)
	@mkdir -p $(@D)
	$(call say,NVCC)
	$(Q)$(NVCC) $(CU_ARCH) -o $@ $(filter %.o,$^) $(LIB) -Xcompiler -fopenmp,-rdynamic $(ALL_LIBS)

# ---- installation ----

.PHONY: install uninstall demo clean help
INSTALL  ?= install
bindir    = $(DESTDIR)$(PREFIX)/bin
libdir    = $(DESTDIR)$(PREFIX)/lib/specpipe
mandir    = $(DESTDIR)$(PREFIX)/share/man
datadir   = $(DESTDIR)$(PREFIX)/share/specpipe
bashdir   = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
zshdir    = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
fishdir   = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
docdir    = $(DESTDIR)$(PREFIX)/share/doc/specpipe
DOCS      = README.md CONTRIBUTING.md CODE_OF_CONDUCT.md SECURITY.md CHANGELOG.md CITATION.cff LICENSE

## install: programs, manual pages, schemas, completion of bash, zsh and fish (PREFIX=/usr/local, DESTDIR=)
install: all
	$(INSTALL) -d $(bindir) $(mandir)/man1 $(mandir)/man5 $(mandir)/man7 $(datadir)/schemas $(docdir) \
	    $(bashdir) $(zshdir) $(fishdir)
	$(INSTALL) -m 755 $(BIN) $(bindir)
	for m in $(MAN); do $(INSTALL) -m 644 $$m $(mandir)/man$${m##*.}/ || exit; done
	$(INSTALL) -m 644 $(SCHEMAS) $(wildcard schemas/README) $(datadir)/schemas
	sed 's/@TOOLS@/$(TOOLS)/' share/completion/specpipe.bash > $(bashdir)/specpipe && chmod 644 $(bashdir)/specpipe
	for t in $(TOOLS); do ln -sf specpipe $(bashdir)/$$t || exit; done
	sed 's/@TOOLS@/$(TOOLS)/' share/completion/_specpipe > $(zshdir)/_specpipe && chmod 644 $(zshdir)/_specpipe
	for t in $(TOOLS); do \
	    sed "s/@TOOL@/$$t/g" share/completion/tool.fish > $(fishdir)/$$t.fish && chmod 644 $(fishdir)/$$t.fish || exit; done
	$(INSTALL) -m 644 $(DOCS) $(docdir)
	$(INSTALL) -d $(datadir)/demo
	$(INSTALL) -m 644 share/demo/report.awk share/demo/figure.gp $(datadir)/demo
	$(INSTALL) -m 755 share/demo/demo.sh $(datadir)/demo
	$(INSTALL) -d $(datadir)/night
	$(INSTALL) -m 644 share/reduce.mk share/Snakefile share/night-model.awk $(datadir)
	for f in share/night/*; do \
	    if [ -x $$f ]; then $(INSTALL) -m 755 $$f $(datadir)/night; else $(INSTALL) -m 644 $$f $(datadir)/night; fi || exit; done
	$(INSTALL) -d $(datadir)/examples
	$(INSTALL) -m 644 $(wildcard share/examples/*) $(datadir)/examples
	$(if $(PLUGIN)$(HOOK),$(INSTALL) -d $(libdir) && $(INSTALL) -m 755 $(PLUGIN) $(HOOK) $(libdir))

## uninstall: remove what install put there
uninstall:
	rm -f $(TOOLS:%=$(bindir)/%) $(foreach m,$(notdir $(MAN)),$(mandir)/man$(subst .,,$(suffix $m))/$m)
	rm -f $(bashdir)/specpipe $(TOOLS:%=$(bashdir)/%) $(zshdir)/_specpipe $(TOOLS:%=$(fishdir)/%.fish)
	rm -rf $(datadir) $(docdir) $(libdir)

## demo: a simulated exposure from CCD images to radial velocities, in demo-out/
demo: all
	@PATH="$(abspath $(BUILD))/bin:$$PATH" share/demo/demo.sh demo-out

## simulate-night: a simulated night from images to velocities, in night-out/ (EXPOSURES=3 PETALS=1 FIBRES=50 WIDTH=whole)
.PHONY: simulate-night
simulate-night: all
	@PATH="$(abspath $(BUILD))/bin:$$PATH" $(foreach v,EXPOSURES PETALS FIBRES SEED WIDTH FAULTS,$(if $($v),$v='$($v)')) \
	    share/night/demo.sh night-out

## bench-night: where the time of a night goes (PETALS=1 FIBRES=50 EXPOSURES=1 WIDTH=whole JOBS=8 DEVICES="cpu cuda")
.PHONY: bench-night
bench-night: all $(if $(findstring cuda,$(DEVICES)),$(PLUGIN))
	@PATH="$(abspath $(BUILD))/bin:$$PATH" $(foreach v,EXPOSURES PETALS FIBRES SEED WIDTH JOBS SETTINGS,$(if $($v),$v='$($v)')) \
	    share/night/bench.sh $(BUILD)/bench/night $(DEVICES)

# ---- releases ----

RELEASE = $(if $(filter command,$(origin VERSION)),,$(error make $@ VERSION=x.y.z))BUILD='$(BUILD)' DRY='$(DRY)' \
          share/release.sh $@ '$(VERSION)'

## release: changelog, version, commit, tag, archive and checksums of VERSION=x.y.z, in build/release (DRY=1: only say so)
.PHONY: release archive
release:
	@$(RELEASE)

## archive: archive and checksums of a release that is tagged, VERSION=x.y.z
archive:
	@$(RELEASE)

## portable: one archive for any x86-64 Linux with glibc 2.36 or newer, in build/specpipe-VERSION-x86_64.tar.xz
.PHONY: portable check-portable
portable:
	+@$(MAKE) BUILD=$(BUILD)/portable PORTABLE=1 all
	+@MAKE='$(MAKE)' share/portable.sh $(BUILD)/portable $(BUILD)/specpipe-$(VERSION)-x86_64.tar.xz

## wheel: the same and the Python package as a wheel for pip, in build/specpipe-VERSION-py3-none-manylinux_2_36_x86_64.whl
.PHONY: wheel
wheel: portable
	@python3 share/wheel.py $(BUILD)/specpipe-$(VERSION)-x86_64.tar.xz $(BUILD)

## check-portable: the archive twice, with the same bytes, and its programs in a bare chroot of another release (SUITE=trixie); root
check-portable:
	+@MAKE='$(MAKE)' tests/portable.sh $(BUILD) $(or $(SUITE),trixie)

## deb: Debian packages in build/deb, and lintian's report (debian/; with nvcc one of the CUDA backend, too)
.PHONY: deb
deb:
	+@NVCC='$(NVCC)' share/deb.sh $(BUILD)/deb

## check-deb: the packages, built in a fresh chroot with nothing but what they ask for, lintian, autopkgtest (SUITE=bookworm); root
.PHONY: check-deb
check-deb:
	+@NVCC='$(NVCC)' tests/deb.sh $(BUILD) $(or $(SUITE),bookworm)

## clean: remove all that was built
clean:
	rm -rf $(BUILD)

## help: this list
help:
	@sed -n 's/^## //p' Makefile | awk -F': ' '{ n = index($$0, ": "); printf "  %-14s %s\n", $$1, substr($$0, n + 2) }'

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
