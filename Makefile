# specpipe: one non-recursive Makefile. `make help` lists the targets; config.mk (if there) overrides variables.
#
# Needs: a C11 compiler, HDF5 with HL, CFITSIO, OpenBLAS with LAPACKE, FFTW3, ERFA, zlib (./bootstrap installs them).

VERSION  := $(shell cat VERSION)
CC       ?= cc
BUILD    ?= build
PREFIX   ?= /usr/local
DESTDIR  ?=
OPT      ?= -O2 -g
WARN      = -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wconversion \
            -Wno-sign-conversion -Werror
SHARED   ?= ../shared
-include config.mk

# CUDA is found by itself when nvcc is there; `make NVCC=` builds without.
NVCC     ?= $(shell command -v nvcc 2>/dev/null)

PKGS      = hdf5 cfitsio openblas lapacke fftw3 fftw3f erfa zlib
PKG_CONFIG ?= pkg-config
# Debian's HDF5 calls its pkg-config file hdf5-serial or hdf5, by release.
HDF5_PC  := $(firstword $(foreach p,hdf5-serial hdf5,$(if $(shell $(PKG_CONFIG) --exists $(p) 2>/dev/null && echo y),$(p))))
LIB_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(HDF5_PC) cfitsio openblas lapacke fftw3 fftw3f erfa zlib 2>/dev/null)
LIB_LIBS   := $(shell $(PKG_CONFIG) --libs $(HDF5_PC) cfitsio openblas lapacke fftw3 fftw3f erfa zlib 2>/dev/null)
LDLIBS     ?=
ALL_LIBS   = $(patsubst -lhdf5,-lhdf5_hl -lhdf5,$(LIB_LIBS)) -lm -ldl -lpthread $(LDLIBS)

SAN       ?=
CPPFLAGS  += -D_GNU_SOURCE -DSPX_VERSION='"$(VERSION)"' -DSPX_LIBDIR='"$(PREFIX)/lib/specpipe"' \
             -Ilibcommon -Ikernels -I$(BUILD)/gen
ALL_CFLAGS = -std=c11 $(OPT) $(WARN) -fopenmp -ffp-contract=off -fno-math-errno $(SAN) $(CPPFLAGS) $(LIB_CFLAGS) $(CFLAGS)
ALL_LDFLAGS = -fopenmp $(SAN) $(LDFLAGS)

TOOLS     := $(sort $(patsubst tools/%.c,%,$(wildcard tools/*.c)))
LIB_SRC   := $(sort $(wildcard libcommon/*/*.c kernels/*.c kernels/*/*.c))
LIB_OBJ   := $(LIB_SRC:%.c=$(BUILD)/obj/%.o) $(BUILD)/obj/gen/schemas.o
LIB       := $(BUILD)/lib/libspecpipe.a
BIN       := $(TOOLS:%=$(BUILD)/bin/%)
CTESTS    := $(sort $(patsubst tests/%.c,%,$(wildcard tests/unit/test_*.c tests/kernels/test_*.c)))
CTEST_BIN := $(CTESTS:%=$(BUILD)/tests/%)
SCHEMAS   := $(sort $(wildcard schemas/*.schema))
MAN       := $(patsubst man/%.in,$(BUILD)/man/%,$(sort $(wildcard man/*.in))) $(BUILD)/man/specpipe-schema.5

.PHONY: all lib tests check
.DELETE_ON_ERROR:
.SECONDARY:
all: $(BIN)

# Changing the flags rebuilds everything.
$(BUILD)/flags: FORCE
	@mkdir -p $(BUILD)
	@echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(ALL_LIBS) $(NVCC)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(ALL_LIBS) $(NVCC)' > $@
.PHONY: FORCE
FORCE:

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The schema texts are the only definition of the products: they are compiled in as they stand.
$(BUILD)/gen/schemas.c: $(SCHEMAS) share/embed.awk
	@mkdir -p $(@D)
	LC_ALL=C awk -f share/embed.awk $(SCHEMAS) > $@

$(LIB): $(LIB_OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) rcs $@ $^

lib: $(LIB)

$(BUILD)/bin/%: $(BUILD)/obj/tools/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $< $(LIB) $(ALL_LIBS)

$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $< $(LIB) $(ALL_LIBS)

tests: $(CTEST_BIN)

clean:
	rm -rf $(BUILD)
.PHONY: clean

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
