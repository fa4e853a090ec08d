# Reduces a night: pre-processed images and PSFs to spectra, coadds and velocities (specpipe-night(7)).
#
#     make -f reduce.mk NIGHT=20201214 -j8           all that can be made; status 2 when something failed
#     make -f reduce.mk NIGHT=20201214 status        done, missing, failed
#     make -f reduce.mk NIGHT=20201214 retry         forget failures, so that they are tried again
#     make -f reduce.mk NIGHT=20201214 hosts         the night on the machines of HOSTS, by ssh
#     make -f reduce.mk NIGHT=20201214 slurm         the night as four jobs of Slurm, three of them arrays
#
# A target is a product, and nothing else says what is done: products appear when complete. One that cannot be made
# leaves a record beside it, PRODUCT.failed, which takes its place as a target until its inputs change (night/job.sh); what
# depends on it is made from the rest.

RULES := $(realpath $(lastword $(MAKEFILE_LIST)))
SHARE := $(dir $(RULES))night
# of make's own arithmetic; of recipes below
SHELL := bash

# ---- settings: on the command line, or in a file night.mk in the current folder ----

# The environment has such names for other reasons (tcsh sets GROUP): it says NIGHT at most.
SETTINGS   := IMAGES PSFS OUT GROUP NSIDE TEMPLATES CONTINUUM ARMS BINS_b BINS_r BINS_z LINES_b LINES_r LINES_z COMMON \
              EXTRACT FLAT SKY FLUX STANDARD VELOCITY PAGE PICTURES DEVICES DEVICE_MEM BATCH HOSTS PARALLEL SBATCH ARRAY SUBMIT PART
$(foreach v,$(SETTINGS),$(if $(filter environment,$(origin $v)),$(eval undefine $v)))
-include night.mk
ifndef NIGHT
$(error Which night? NIGHT=20201214)
endif

# Names of the files; NIGHT, EXPID and CAM (b0, red12: letters and a number) stand for themselves, * for anything.
IMAGES     ?= preproc/NIGHT/EXPID/preproc-CAM-EXPID.fits*
PSFS       ?= psf/NIGHT/psf-CAM.fits*
OUT        ?= redux/$(NIGHT)
# Coadds and velocities: a group is a tile, a petal of a tile, an exposure, or a pixel of HEALPix with this NSIDE.
GROUP      ?= tile
NSIDE      ?= 64
# Templates: for velocities, and with their continuum for the standard stars (rvs-template --norm median).
TEMPLATES  ?= templates.h5
CONTINUUM  ?= continuum.h5
# Arms: the letters of the cameras' names. Bins, Angstrom; lines for the zero point of the wavelengths. Other arms have settings of
# their own, BINS_red and LINES_red (sky).
ARMS       ?= b r z
$(foreach a,$(ARMS),$(foreach v,BINS_$a LINES_$a,$(if $(filter environment,$(origin $v)),$(eval undefine $v))))
BINS_b     ?= 3600,5800,0.8
BINS_r     ?= 5760,7620,0.8
BINS_z     ?= 7520,9824,0.8
LINES_b    ?= none
LINES_r    ?= sky
LINES_z    ?= sky
$(foreach a,$(ARMS),$(if $(filter undefined,$(origin LINES_$a)),$(eval LINES_$a := sky)))
# Options of the programs. STANDARD: which stars give the response, and the parts of their spectra that are fitted.
COMMON     ?= --reproducible
EXTRACT    ?= --reject 5 --barycentric --tolerance 1e-5
FLAT       ?=
SKY        ?=
FLUX       ?=
STANDARD   ?= --objtypes STD_ --leave-out telluric
VELOCITY   ?= --resolution-matrix
# The page of the night: a command that makes $(OUT)/night.html of the products in OUT. PAGE= makes none.
PAGE       ?= $(SHARE)/page.sh $(OUT)
# Of how many groups it draws the stars.
PICTURES   ?= 16
# Devices that jobs share: DEVICES="cuda:0 cuda:1". A job waits until one is free; a device that stands twice takes two jobs.
DEVICES    ?=
# Memory of a GPU that an image takes in traces and spectra, whose processes have two in work and keep it. With what is free each takes
# 16 to 28 GB: the six of a night fill an H200, others wait for memory until one ends, and more of them wait for each other.
DEVICE_MEM ?= 3G
# Kinds of products that are made on devices. The others take less time on processors than the start of a process on a GPU. Fluxes
# are among them where DEVICES names a GPU, since one process makes many. BATCH changes nothing here: else it would change the
# commands that the products keep.
ON_DEVICE  ?= psf frame sframe standards $(if $(filter cuda%,$(DEVICES)),cframe) rv
# Frames of an arm that one process takes, one after another, where a program takes queues. On a GPU the start of a process takes
# longer than a frame, and 40 are the petals of four exposures; processors have nothing from it.
BATCH      ?= $(if $(if $(DEVICES),$(filter cuda%,$(DEVICES)),$(wildcard /dev/nvidia[0-9])),40,1)
# Several machines: a file of them, for GNU Parallel, and options of that; for Slurm options of all jobs, and the most elements
# of an array. The script that starts them is given to SUBMIT: cat prints it.
HOSTS      ?= hosts
PARALLEL   ?=
SBATCH     ?=
ARRAY      ?= 1000
SUBMIT     ?= bash
# One part of the night: camera-r0, petal-0-00000012 or group-100. For one of many makes, on one machine or several that
# share the folders: it makes what belongs to the part alone, and takes the plan and all other products as they are.
PART       ?=

# ---- the night: cameras, exposures and their files ----

# What the files say cannot be set, neither here nor by a make above this one.
$(foreach v,CAMERAS PETALS SCIENCE FLATS ARCS GROUPS PRODUCTS,$(if $(findstring command,$(origin $v)),\
    $(error $v=$($v): the files say so, and it is no setting; PART=petal-0-EXPID and the like make a part of the night)))

# Names that make or the shell would take apart: without a word they made folders of other names.
odd := % : ; \# ' " ` \ | & < > ( ) [ ] ? * $$
$(foreach v,NIGHT OUT TEMPLATES CONTINUUM,$(if $(or $(word 2,$($v)),$(strip $(foreach c,$(odd),$(findstring $c,$($v))))),\
    $(error $v=$($v): names of folders and files must not have blanks, or any of $(odd))))
ifeq ($(wildcard $(SHARE)/plan.sh),)
$(error There is no night/plan.sh beside $(MAKEFILE_LIST): the path of these rules must not have blanks)
endif

ifneq ($(filter-out tile petal exposure healpix,$(GROUP)),)
$(error GROUP=$(GROUP): a group is tile, petal, exposure or healpix)
endif
ifeq ($(PART),)
$(shell mkdir -p $(OUT))
PLAN := $(shell bash $(SHARE)/plan.sh '$(NIGHT)' '$(IMAGES)' '$(PSFS)' '$(OUT)' $(if $(filter healpix,$(GROUP)),$(NSIDE)) || echo failed)
ifneq ($(PLAN),)
$(error There is no plan of the night $(NIGHT): see above)
endif
endif
include $(OUT)/plan.mk

# Cameras are found by the beginning of their names, the arm. What is behind it is a number, the petal.
letters-of  = $(if $1,$(call letters-of,$(wordlist 2,99,$1),$(subst $(firstword $1),,$2)),$2)
unknown    := $(filter-out $(ARMS),$(call letters-of,0 1 2 3 4 5 6 7 8 9,$(CAMERAS)))
$(foreach a,$(ARMS),$(if $(filter-out $a,$(filter $a%,$(ARMS))),\
    $(error ARMS=$(ARMS): $a is the beginning of another arm: link to the files of its cameras by other names)))
ifneq ($(unknown),)
$(error The cameras $(CAMERAS) are not of the arms $(ARMS): set ARMS to the letters of their names, and BINS_ of each)
endif
$(foreach a,$(call letters-of,0 1 2 3 4 5 6 7 8 9,$(CAMERAS)),$(if $(BINS_$a),,$(error BINS_$a is not set: MIN,MAX,STEP of the spectra of arm $a)))

PETALS     := $(sort $(foreach a,$(ARMS),$(patsubst $a%,%,$(filter $a%,$(CAMERAS)))))
GROUPS-tile     := $(sort $(foreach e,$(SCIENCE),$(TILE-$e)))
GROUPS-petal    := $(foreach t,$(GROUPS-tile),$(PETALS:%=%-$t))
GROUPS-exposure := $(SCIENCE)
GROUPS-healpix  := $(PIXELS)
GROUPS     := $(GROUPS-$(GROUP))
# Petals and exposures, PETAL-EXPID, that a group is made of.
exposures-of = $(foreach e,$(SCIENCE),$(if $(filter $1,$(TILE-$e)),$e))
from-tile   = $(foreach e,$(exposures-of),$(PETALS:%=%-$e))
from-petal  = $(foreach t,$(word 2,$(subst -, ,$1)),$(patsubst %,$(firstword $(subst -, ,$1))-%,$(call exposures-of,$t)))
from-exposure = $(PETALS:%=%-$1)
from-healpix  = $(FROM-$1)
# Names of products: each of the first list with each of the second.
cross       = $(foreach a,$2,$(foreach b,$3,$(OUT)/$1-$a-$b.h5))

# Of exposures one petal after another, in which order make begins them.
petal-made  = $(foreach p,psf frame sframe cframe,$(foreach a,$(ARMS),$(if $(filter $a$1,$(CAMERAS)),$p-$a$1-$2.h5))) \
              standards-$1-$2.h5 spectra-$1-$2.h5
PRODUCTS   := $(CAMERAS:%=$(OUT)/psf-%.h5) $(call cross,frame,$(CAMERAS),$(FLATS)) $(if $(FLATS),$(CAMERAS:%=$(OUT)/flat-%.h5)) \
              $(addprefix $(OUT)/,$(foreach e,$(SCIENCE),$(foreach p,$(PETALS),$(call petal-made,$p,$e)))) \
              $(foreach g,$(GROUPS),$(OUT)/coadd-$g.h5 $(OUT)/rv-$g.h5 $(OUT)/rvtab-$g.fits)

# Parts, which are made one after another: all of a kind need only those before. What none has is made last.
PARTS      := $(CAMERAS:%=camera-%)
PARTS      += $(foreach p,$(PETALS),$(foreach e,$(SCIENCE),petal-$p-$e))
PARTS      += $(GROUPS:%=group-%)
camera-made = psf-$1.h5 $(if $(FLATS),$(FLATS:%=frame-$1-%.h5) flat-$1.h5)
group-of    = $1$(if $2,-$2)
group-made  = $(foreach g,$(group-of),coadd-$g.h5 rv-$g.h5 rvtab-$g.fits)
words      := $(subst -, ,$(PART))
ONLY       := $(if $(PART),$(addprefix $(OUT)/,$(call $(firstword $(words))-made,$(word 2,$(words)),$(word 3,$(words)))))
ifneq ($(filter-out $(PARTS),$(PART)),)
$(error PART=$(PART): the night has no such part)
endif

# ---- how make sees failures ----

# A product that failed is present as its record: `made` names what there is, or what will be. In a recipe, `o` is the
# product that is to be made, and the shell's $$(made ...) prints those of some products that exist.
FAILED     := $(foreach f,$(wildcard $(OUT)/*.failed),$(if $(wildcard $(f:.failed=)),,$f))
made        = $(foreach p,$1,$p$(if $(filter $p.failed,$(FAILED)),.failed))
o           = $(@:.failed=)
# Parts of a product's name: r0-00000012 is camera r0, arm r, exposure 00000012; 0-00000012 is petal 0.
stem        = $(basename $(*:.failed=))
cam         = $(firstword $(subst -, ,$(stem)))
exp         = $(word 2,$(subst -, ,$(stem)))
arm         = $(strip $(foreach a,$(ARMS),$(if $(filter $a%,$(cam)),$a)))
petal       = $(patsubst $(arm)%,%,$(cam))
# Files that a product is made of.
image       = $(IMAGE-$(stem))
arcs        = $(ARCS:%=$(OUT)/inputs/$(cam)-%)
arc         = $(firstword $(foreach e,$(ARCS),$(wildcard $(IMAGE-$(cam)-$e))) $(foreach e,$(ARCS),$(IMAGE-$(cam)-$e)))
trace       = $(OUT)/psf-$(if $(filter $(FLATS),$(exp)),$(cam),$(stem)).h5
lamps       = $(FLATS:%=$(OUT)/frame-$(cam)-%.h5)
flat        = $(if $(FLATS),$(OUT)/flat-$(cam).h5)
arms        = $(foreach a,$(ARMS),$(if $(filter $a$(cam),$(CAMERAS)),$(OUT)/$1-$a$(stem).h5))
spectra     = $(patsubst %,$(OUT)/spectra-%.h5,$(call from-$(GROUP),$(stem)))
targets     = $(if $(filter healpix,$(GROUP)),$(OUT)/inputs/$(stem))
# device KIND
device      = $(if $(filter $1,$(ON_DEVICE)),$(if $(DEVICES),--device $$DEVICE),--device cpu)
# in-memory KIND: the same, for programs that would take all memory of a GPU
in-memory   = $(device)$(if $(filter $1,$(ON_DEVICE)),$(if $(filter cuda%,$(DEVICES)),$(DEVICE_MEM:%= --max-device-mem %)))

.ONESHELL:
.SECONDEXPANSION:
.SUFFIXES:
# A make that is interrupted leaves products alone: they are complete, and another make may have made them.
.PRECIOUS: $(foreach p,$(PRODUCTS) $(OUT)/night.html,$p $p.failed)
export DEVICES NIGHT ONLY OUT PICTURES

# Jobs of a kind of product that can be at work at one time: with fewer than -j says, each has more processors (job.sh).
# A queue counts as one; only products that are made on devices have queues.
queue        = $(if $(filter $1,$(ON_DEVICE)),$(BATCH),1)
wanted      := $(if $(PART),$(ONLY),$(PRODUCTS))
count        = $(words $(filter $(OUT)/$1-%,$(wanted)))
queues       = $(shell echo $$((($(call count,$1) + $2 - 1) / $2)))
smaller      = $(shell echo $$(($1 < $2 ? $1 : $2)))
$(foreach k,flat standards spectra coadd rv rvtab,$(eval $(OUT)/$k-%: export AT_ONCE := $(call count,$k)))
$(foreach k,psf frame,$(eval $(OUT)/$k-% $(OUT)/.batch-$k-%: export AT_ONCE := $(call queues,$k,$(BATCH))))
$(foreach k,sframe cframe,$(eval $(OUT)/$k-% $(OUT)/.batch-$k-%: export AT_ONCE := $(call queues,$k,$(call queue,$k))))
$(foreach c,$(CAMERAS),$(eval $(OUT)/psf-$c.h5: export AT_ONCE := $(if $(PART),1,$(words $(CAMERAS)))))

page        = $(if $(PAGE),$(OUT)/night.html)
# The list of products is too long for a command.
report      = $(file >$(OUT)/products.txt,$(PRODUCTS) $(page))$(SHARE)/status.sh $(OUT) <$(OUT)/products.txt

.PHONY: all status retry hosts slurm parts
ifeq ($(PART),)
all: $(call made,$(PRODUCTS) $(page))
	@$(report)
else
all: $(call made,$(ONLY))
endif

status:
	@$(report) || true

retry:
	rm -f $(OUT)/*.failed

parts-sh    = $(file >$(OUT)/parts.txt,$(PARTS))$(SHARE)/parts.sh $@ $(RULES) $(NIGHT)
hosts:
	@$(parts-sh) '$(PARALLEL)' '$(HOSTS)' <$(OUT)/parts.txt | $(SUBMIT)

slurm:
	@$(parts-sh) '$(SBATCH)' '$(ARRAY)' <$(OUT)/parts.txt | $(SUBMIT)

# Parts, and the parts and stamps of inputs that each needs, for the Snakefile and others.
camera-needs = $(patsubst %,inputs/%,$1 $(FLATS:%=$1-%) $(ARCS:%=$1-%))
petal-needs  = $(foreach c,$(foreach a,$(ARMS),$(filter $a$1,$(CAMERAS))),parts/camera-$c inputs/$c-$2)
group-needs  = $(patsubst %,parts/petal-%,$(call from-$(GROUP),$(group-of))) $(if $(filter healpix,$(GROUP)),inputs/$1)
parts:
	@$(foreach p,$(PARTS),$(info $p: $(call $(firstword $(subst -, ,$p))-needs,$(word 2,$(subst -, ,$p)),$(word 3,$(subst -, ,$p)))))true

# ---- products of a camera ----

# The PSF of the night. Where there is an arc it follows its lines, twice: the first time finds most of it.
$(foreach c,$(CAMERAS),$(OUT)/psf-$c.h5 $(OUT)/psf-$c.h5.failed): $(OUT)/psf-%: $(OUT)/inputs/$$(cam) $$(arcs)
	$(if $(ARCS),fits2h5 $(COMMON) $(arc) $(PSF-$(cam)) | specx-shift $(COMMON) $(call in-memory,psf) --lamp |
	    specx-shift $(COMMON) $(call in-memory,psf) --lamp --psf-only -f -o $o,fits2h5 $(COMMON) -f -o $o $(PSF-$(cam)))

# An image as HDF5, with its read noise only where that is used: a quarter of the bytes.
as-hdf5     = fits2h5 $(COMMON) $(if $(findstring model,$(EXTRACT)),,--leave-out READNOISE )$(image) |

# Traces of an exposure.
psf-from    = $(OUT)/inputs/$(stem) $(call made,$(OUT)/psf-$(cam).h5)
define psf-make
$(as-hdf5)
    specx-shift $(COMMON) $(call in-memory,psf) --lines $(LINES_$(arm)) --psf-only -f -o $o $(OUT)/psf-$(cam).h5 -
endef
$(OUT)/psf-%: $$(psf-from)
	$(psf-make)

# Spectra; a flat is extracted with the PSF of the night.
frame-from  = $(OUT)/inputs/$(stem) $(call made,$(trace))
define frame-make
$(as-hdf5)
    specx-extract $(COMMON) $(call in-memory,frame) $(if $(filter $(FLATS),$(exp)),,$(EXTRACT)) -w $(BINS_$(arm)) -f -o $o $(trace) -
endef
$(OUT)/frame-%: $$(frame-from)
	$(frame-make)

# Fibre flat of the night.
$(OUT)/flat-%: $$(call made,$$(lamps))
	specx-flat $(COMMON) $(call device,flat) $(FLAT) -f -o $o $$(made $(^:.failed=))

# Flat-fielded and without sky; the model of the sky is in the same file.
sframe-from = $(call made,$(OUT)/frame-$(stem).h5 $(flat))
sframe-make = specx-sky $(COMMON) $(call device,sframe) $(SKY) -f -o $o $(flat) $(OUT)/frame-$(stem).h5
$(OUT)/sframe-%: $$(sframe-from)
	$(sframe-make)

# Calibrated with the standard stars of the petal.
cframe-from = $(call made,$(OUT)/sframe-$(stem).h5 $(OUT)/standards-$(petal)-$(exp).h5)
cframe-make = specx-flux $(COMMON) $(call device,cframe) $(FLUX) -f -o $o $(OUT)/standards-$(petal)-$(exp).h5 $(OUT)/sframe-$(stem).h5
$(OUT)/cframe-%: $$(cframe-from)
	$(cframe-make)

# Models of the standard stars of a petal, and its calibrated spectra.
standards-from = $(call made,$(call arms,sframe)) $(CONTINUUM)
standards-make = rvs-fit $(COMMON) $(call device,standards) -t $(CONTINUUM) --resolution-matrix $(STANDARD) --with-template -f -o $o $$(made $(call arms,sframe))
spectra-from = $(call made,$(call arms,cframe))
spectra-make = h5merge $(COMMON) --by cameras --allow-missing -f -o $o $(call arms,cframe)

# Of a group; exposures of a star are fitted together, each with its own resolution.
coadd-from  = $(call made,$(spectra)) $(targets)
coadd-make  = h5merge $(COMMON) $(call device,coadd) --allow-missing --coadd auto $(targets:%=--targetid-file %) -f -o $o $(spectra)
rv-from     = $(call made,$(spectra)) $(targets) $(TEMPLATES)
rv-make     = rvs-fit $(COMMON) $(call device,rv) -t $(TEMPLATES) $(VELOCITY) --joint target $(targets:%=--targetid-file %) -f -o $o $$(made $(spectra))
rvtab-from  = $(call made,$(OUT)/rv-$(stem).h5)
rvtab-make  = h52fits $(COMMON) -f -o $o $(OUT)/rv-$(stem).h5

# ---- products that are made together ----

# Products that are absent, of one kind, are made in batches of those whose programs have the same options, and traces with the
# spectra of the exposure, whose image is converted once. One rule makes several products, each of which has its own inputs and
# its own command (night/job.sh). What is there and has become too old is made alone, so that nothing else looks as if it
# were new.
define newline


endef
behind      := $(shell echo $$(($(BATCH) + 1)))
present     := $(patsubst %.failed,%,$(wildcard $(OUT)/*.h5 $(OUT)/rvtab-*.fits $(OUT)/*.failed))
# Of stems $2 those whose product of kind $1 is to be made.
absent       = $(patsubst $(OUT)/$1-%.h5,%,$(filter-out $(present) $(in-whole),$(if $(PART),$(filter $(ONLY),$(2:%=$(OUT)/$1-%.h5)),$(2:%=$(OUT)/$1-%.h5))))
# A list of products, for job.sh: in a file where it is made, which make -n is not to write, and printed as recipes are. Its name has
# this make's process: where that has ended before job.sh has read the list, plan.sh removes it.
letters      = $(filter-out --%,$(firstword -$(MAKEFLAGS)))
this-make   := $(shell echo $$HOSTNAME.$$PPID)
list         = $(OUT)/.list-$(this-make)-$(notdir $o)
listed       = $(if $(findstring n,$(letters)),$1,$(if $(findstring s,$(letters)),,$(info $1))$(file >$(list),$1)@list $(list))
# in-one PRODUCTS INPUTS [AFTER]: a target that never is there has the recipe, and the products wait for it: as targets of one grouped rule
# each would have all the inputs, and all the others, which are millions for some hundred petals.
define in-one
$1: $(OUT)/.batch-$(notdir $(firstword $1)) ;
$(OUT)/.batch-$(notdir $(firstword $1)): $(sort $(filter-out $1,$2)) $(if $3,| $3)
endef
# batch KINDS STEMS [AFTER]
made-of      = $(foreach k,$1,$(2:%=$(OUT)/$k-%.h5))
define batch
$(call in-one,$(made-of),$(foreach k,$1,$(foreach stem,$2,$($k-from))),$3)
	$$(call listed,$$(foreach k,$1,$$(foreach stem,$2,$$(foreach o,$(OUT)/$$k-$$(stem).h5,$$(newline)# $$o: $$($$k-from)$$(newline)$$($$k-make)))))
endef
in-batches   = $(if $2,$(if $(word 2,$1)$(word 2,$2),$(eval $(call batch,$1,$(wordlist 1,$(BATCH),$2),$3)))$(call in-batches,$1,$(wordlist $(behind),$(words $2),$2),$3))
# On devices a batch waits for an earlier one of its arm, so that there are as many as have places, and one more of each arm whose
# images are converted meanwhile. Else make would begin all traces of a night, with all images converted, before the first sky.
ahead       := $(shell echo $$(($(words $(DEVICES)) / $(words $(ARMS)) + 1)))
in-turn      = $(if $2,$(eval begun := $(firstword $2) $(begun))$(call in-batches,$1,$(wordlist 1,$(BATCH),$2),$(patsubst %,$(OUT)/$(lastword $1)-%.h5,$(word $(behind-turn),$(begun))))$(call in-turn,$1,$(wordlist $(behind),$(words $2),$2)))
behind-turn := $(shell echo $$(($(ahead) + 1)))
# stems CAMERAS EXPOSURES, one exposure after another
stems        = $(foreach e,$2,$(foreach c,$1,$c-$e))

# Petals of which nothing is there yet, PETAL-EXPID, are made as a whole: each goes on while others of its batch are at work
# (night/job.sh). A batch has programs on devices, of traces and of spectra one for each arm; of skies, fluxes, standard stars, and
# velocities where a petal is a group of its own, one each, or two for the many products of an exposure (night/queues.sh). As many
# batches are at work as have places for these, and one more; the next one waits for the first.
programs    := $(shell echo $$((2 * $(words $(ARMS)) + $(words $(filter sframe cframe,$(ON_DEVICE))) * ($(words $(CAMERAS)) > 20 ? 2 : 1) \
    + $(words $(filter standards,$(ON_DEVICE)) $(filter petal,$(GROUP))) * ($(words $(PETALS)) > 5 ? 2 : 1))))
at-work     := $(shell echo $$((w = $(words $(DEVICES)) / $(programs) + 1, w < 2 ? 2 : w)))
cams         = $(foreach a,$(ARMS),$(if $(filter $a$(petal-of),$(CAMERAS)),$a$(unit)))
petal-of     = $(firstword $(subst -, ,$(unit)))
untouched    = $(foreach unit,$1,$(if $(filter $(present),$(addprefix $(OUT)/,$(call petal-made,$(petal-of),$(word 2,$(subst -, ,$(unit)))))),,$(unit)))
units       := $(if $(filter sframe,$(ON_DEVICE)),$(if $(filter-out 1,$(BATCH)),$(call untouched,$(if $(PART),$(patsubst petal-%,%,$(filter petal-%,$(PART))),$(foreach e,$(SCIENCE),$(PETALS:%=%-$e))))))
# Groups that have only one of these petals, PETAL-TILE, and of which nothing is there either.
lone         = $(if $(filter petal,$(GROUP)),$(foreach unit,$1,$(foreach g,$(petal-of)-$(TILE-$(word 2,$(subst -, ,$(unit)))),\
    $(if $(filter-out $(unit),$(call from-petal,$g))$(filter $(present),$(addprefix $(OUT)/,$(call group-made,$g))),,$g))))
members      = $(if $(filter standards spectra,$1),$2,$(if $(filter coadd rv rvtab,$1),$(call lone,$2),$(foreach unit,$2,$(cams))))
whole-kinds := psf frame sframe standards cframe spectra coadd rv rvtab
product-of   = $(OUT)/$1-$2.$(if $(filter rvtab,$1),fits,h5)
whole-made   = $(foreach k,$(whole-kinds),$(foreach stem,$(call members,$k,$1),$(call product-of,$k,$(stem))))
define whole
$(call in-one,$(whole-made),$(foreach k,$(whole-kinds),$(foreach stem,$(call members,$k,$1),$($k-from))),$2)
	$$(call listed,$$(foreach k,$(whole-kinds),$$(foreach stem,$$(call members,$$k,$1),$$(foreach o,$$(call product-of,$$k,$$(stem)),$$(newline)# $$o: $$($$k-from)$$(newline)$$($$k-make)))))
endef
petals-whole = $(if $1,$(eval begun := $(lastword $(wordlist 1,$(together-whole),$1)) $(begun))$(eval $(call whole,$(wordlist 1,$(together-whole),$1),$(patsubst %,$(OUT)/spectra-%.h5,$(word $(shell echo $$(($(at-work) + 1))),$(begun)))))$(call petals-whole,$(wordlist $(shell echo $$(($(together-whole) + 1))),$(words $1),$1)))
begun       :=
# Whole exposures, as many as make each of the batches that have places at the same time the same length, in BATCH.
together-whole := $(shell echo $$((p = $(words $(PETALS)), w = $(at-work) - 1, n = ($(words $(units)) + w - 1) / w, n = p ? (n + p - 1) / p * p : n, n < $(BATCH) ? (n > 0 ? n : 1) : $(BATCH))))
$(call petals-whole,$(units))
in-whole    := $(foreach unit,$(units),$(foreach k,psf frame sframe cframe,$(cams:%=$(OUT)/$k-%.h5)))
$(if $(units),$(foreach k,$(whole-kinds),$(eval $(OUT)/$k-% $(OUT)/.batch-$k-%: export BATCHES := $(shell echo $$(($(at-work) - 1))))\
    $(eval $(OUT)/$k-% $(OUT)/.batch-$k-%: export AT_ONCE := $(shell echo $$(($(words $(ARMS)) * ($(at-work) - 1)))))))

# By arm; the flat is a camera's, the standard stars are a petal's.
of-arm       = $(filter $1%,$(CAMERAS))
of-petal     = $(foreach a,$(ARMS),$(filter $a$1,$(CAMERAS)))
batches      = $(call in-batches,$1,$(call absent,$1,$2))
traces      := $(foreach a,$(ARMS),$(call absent,psf,$(call stems,$(call of-arm,$a),$(SCIENCE))))
frames      := $(foreach a,$(ARMS),$(call absent,frame,$(call stems,$(call of-arm,$a),$(SCIENCE))))
skies       := $(if $(filter-out 1,$(BATCH)),$(if $(filter sframe,$(ON_DEVICE)),$(foreach a,$(ARMS),$(call absent,sframe,$(call stems,$(call of-arm,$a),$(SCIENCE))))))
both        := $(filter $(traces),$(frames))
all-three   := $(filter $(both),$(skies))
# On processors the last jobs of these are fewer than may be at work, and have more processors each (job.sh): NTH is the number of a job
# in the order in which make begins them, and how many there are.
in-order    := $(if $(filter 1,$(BATCH)),$(filter $(both:%=$(OUT)/psf-%.h5),$(wanted)))
$(foreach k,$(if $(in-order),$(shell n=$(words $(in-order)); seq $$((n > 63 ? n - 62 : 1)) $$n)),$(eval $(word $k,$(in-order)): export NTH := $k $(words $(in-order))))
together     = $(foreach a,$(ARMS),$(eval begun :=)$(call $(if $(DEVICES),in-turn,in-batches),$1,$(filter $a%,$2)))
$(call together,psf frame sframe,$(all-three))
$(call together,psf frame,$(filter-out $(all-three),$(both)))
ifneq ($(BATCH),1)
$(foreach a,$(ARMS),$(call in-batches,psf,$(filter $a%,$(filter-out $(both),$(traces)))))
$(foreach a,$(ARMS),$(call in-batches,frame,$(filter $a%,$(filter-out $(both),$(frames)))))
$(foreach a,$(ARMS),$(call batches,frame,$(call stems,$(call of-arm,$a),$(FLATS))))
$(foreach a,$(ARMS),$(call in-batches,sframe,$(filter $a%,$(filter-out $(all-three),$(skies)))))
$(if $(filter cframe,$(ON_DEVICE)),$(foreach e,$(SCIENCE),$(call batches,cframe,$(call stems,$(foreach p,$(PETALS),$(call of-petal,$p)),$e))))
endif

# ---- products of a petal ----

$(OUT)/standards-%: $$(standards-from)
	$(standards-make)

$(OUT)/spectra-%: $$(spectra-from)
	$(spectra-make)

# ---- products of a group ----

$(OUT)/coadd-%: $$(coadd-from)
	$(coadd-make)

$(OUT)/rv-%: $$(rv-from)
	$(rv-make)

$(OUT)/rvtab-%: $$(rvtab-from)
	$(rvtab-make)

$(TEMPLATES) $(CONTINUUM):
	$(error $@ is not there: make TEMPLATES and CONTINUUM as specpipe-night(7) says, or say where they are)

# ---- the night ----

# The page, of all products and failures: it is the last.
$(OUT)/night.html $(OUT)/night.html.failed: $(call made,$(PRODUCTS))
	$(PAGE)

# Recipes are run by job.sh, which keeps the record, finds a device, and divides the processors among the jobs. A shell above
# is bash alone, since there are twenty of it.
SHELL       = $(SHARE)/job.sh
.SHELLFLAGS = $@ $^ -c
