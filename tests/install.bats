# What `make install` puts where, and that nothing stays after `make uninstall`.

load common

# The house's make builds what is installed: CUDA only where this build has it, for nvcc takes ten minutes.
house() {
    local cuda=()
    [ -e "$SPX_BUILD/lib/specpipe/backend-cuda.so" ] || cuda=(NVCC=)
    # A sanitizer's build knows nothing of its flags here and would be made anew without them.
    [ -z "${ASAN_OPTIONS:-}${UBSAN_OPTIONS:-}" ] || skip "under a sanitizer"
    make -s --no-print-directory -C "$SPX_ROOT" BUILD="$SPX_BUILD" PREFIX=/opt/spx DESTDIR="$PWD/root" "${cuda[@]}" "$@"
}

@test "install: programs, pages, schemas, completion; uninstall leaves nothing" {
    local t
    house install
    for t in $(programs); do
        [ -x "root/opt/spx/bin/$t" ]
        [ -s "root/opt/spx/share/man/man1/$t.1" ]
        [ -e "root/opt/spx/share/bash-completion/completions/$t" ]
        grep -qE "^#compdef .*\b$t\b" root/opt/spx/share/zsh/site-functions/_specpipe
        [ -s "root/opt/spx/share/fish/vendor_completions.d/$t.fish" ]
    done
    [ ! -e root/opt/spx/bin/TEMPLATE ]
    [ -s root/opt/spx/share/man/man7/specpipe.7 ]
    [ -s root/opt/spx/share/man/man5/specpipe-schema.5 ]
    [ -s root/opt/spx/share/specpipe/schemas/frame.schema ]
    # the rules find their scripts
    touch b1-01.img templates.h5 continuum.h5
    PATH=$PWD/root/opt/spx/bin:$PATH make -n -f root/opt/spx/share/specpipe/reduce.mk NIGHT=1 IMAGES=CAM-EXPID.img OUT=out >rules
    grep -q 'specx-extract .* out/frame-b1-01.h5' rules
    grep -qx "$PWD/root/opt/spx/share/specpipe/night/page.sh out" rules
    # and all files that specpipe-night(7) names are there
    sed -n '/^\.It Pa \/usr\/local\//{s|^\.It Pa ||; s| , |\n|g; s|/usr/local/|root/opt/spx/|g; p}' \
        "$SPX_ROOT/man/specpipe-night.7.in" >files
    grep -q night/page.sh files
    for t in $(<files); do
        [ -s "$t" ]
    done
    # and what is run can be run, what is read by others is no program
    for t in root/opt/spx/share/specpipe/night/*; do
        if head -n 1 "$t" | grep -q '^#!'; then [ -x "$t" ]; else [ ! -x "$t" ]; fi
    done
    [ "$(root/opt/spx/bin/h5check --version)" = "h5check (specpipe) $(cat "$SPX_ROOT/VERSION")" ]
    house uninstall
    [ -z "$(find root ! -type d)" ]
}

@test "plain make builds what is installed" {
    [ "$(make -npq -C "$SPX_ROOT" NVCC= | sed -n 's/^.DEFAULT_GOAL := //p')" = all ]
}

# Installs, and changes to a folder with truth.h5 and image.h5, for completion of names in files; $root is what was installed.
completion_house() {
    house install
    root=$(cd root/opt/spx && pwd)
    PATH=$root/bin:$PATH
    specx-sim -q --arm r --fibers 4 --sky-fibers 1 --wavelength 6500,6540 --truth truth.h5 -o image.h5
    mkdir tree
}

# What each shell offers behind these lines (words sorted), besides names of files.
lines=('rvs-fit --templ' 'rvs-fit --interpolator ' 'rvs-fit --interpolator c' 'h5reduce -p m' 'h5table truth.h5 --table '
    'h5table truth.h5 -c VR' 'h5table truth.h5 --columns VRAD,TE' 'h5table image.h5 -t /fibermap -c OBJ')
offers=(--templates 'auto cubic grid nn simplex' cubic 'maximum mean median minimum' /truth/table VRAD TEFF OBJTYPE)

# completes COMMAND...: COMMAND LINE prints what is offered, a word a line, perhaps with what stands before the last comma.
completes() {
    local i got
    for i in "${!lines[@]}"; do
        got=$("$@" "${lines[i]}" | sed 's/.*,//' | sort | tr '\n' ' ')
        [ "$got" = "${offers[i]} " ] || {
            echo "${lines[i]}: offers '$got', not '${offers[i]}'"
            return 1
        }
    done
}

@test "completion in bash: options, their words, names in files" {
    completion_house
    # offered WORD...: for the last one
    # shellcheck disable=SC2317
    offered() {
        bash -c '. "$0/share/bash-completion/completions/rvs-fit"
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _specpipe "$1"
            printf "%s\n" "${COMPREPLY[@]}"' "$root" "$@"
    }
    # shellcheck disable=SC2317
    offered_behind() {
        local words
        read -ra words <<<"$1"
        [ "${1% }" = "$1" ] || words+=('')
        offered "${words[@]}"
    }
    completes offered_behind
    [ "$(offered rvs-fit --interpolator = | wc -l)" -eq 5 ] # bash's words of --interpolator=
    [ "$(offered rvs-fit --interpolator = s)" = simplex ]
    [ "$(offered h5table --columns = V truth.h5 | wc -l)" -le 1 ]
    # file names: nothing is offered, so that bash does it
    [ "$(offered rvs-fit --templates t)" = '' ]
    [ "$(offered specpipe-info --clean tr)" = tree ]
    # behind an option that is no choice
    [ "$(offered rvs-fit --rotation --inter)" = --interpolator ]
}

@test "completion in zsh: the same" {
    need_program zsh
    completion_house
    # shellcheck disable=SC2317
    offered() { zsh -f "$SPX_ROOT/tests/complete.zsh" "$root/share/zsh/site-functions" "$1"; }
    completes offered
    [ "$(offered 'rvs-fit --interpolator=s')" = simplex ]
    [ "$(offered 'rvs-fit --templates tru')" = truth.h5 ]
    offered 'specpipe-info --clean tr' | grep -x tree | sort -u
}

@test "completion in fish: the same" {
    need_program fish
    completion_house
    # shellcheck disable=SC2317
    offered() {
        HOME=$PWD fish -N -c 'set fish_complete_path $argv[1]; complete -C $argv[2]' \
            "$root/share/fish/vendor_completions.d" "$1" | cut -f 1
    }
    completes offered
    [ "$(offered 'rvs-fit --interpolator=s')" = --interpolator=simplex ]
    [ "$(offered 'rvs-fit --templates tru')" = truth.h5 ]
    [ "$(offered 'specpipe-info --clean tr')" = tree/ ]
}

@test "bootstrap takes one target" {
    fails_with 2 '*usage*' "$SPX_ROOT/bootstrap" check demo
}

@test "README lists the packages that bootstrap installs" {
    diff <(sed -n 's/^\([a-z][^ ]*\) .*/\1/p' "$SPX_ROOT/share/packages.debian" | sort) \
        <(sed -n '/^## What it needs/,/^## /s/^| `\([^`]*\)` .*/\1/p' "$SPX_ROOT/README.md" | sort)
}

@test "every program has a file of tests" {
    local t missing=
    for t in "$SPX_ROOT"/tools/*.c; do
        t=$(basename "$t" .c)
        [ "$t" = TEMPLATE ] || grep -qs '^@test' "$SPX_ROOT/tests/$t.bats" || missing+=" $t"
    done
    echo "no tests/NAME.bats of:$missing"
    [ -z "$missing" ]
}

@test "README and specpipe(7) name every program, CHANGELOG the version" {
    local t
    for t in "$SPX_ROOT"/tools/*.c; do
        t=$(basename "$t" .c)
        [ "$t" = TEMPLATE ] || grep -q "^| \`$t\`" "$SPX_ROOT/README.md"
        [ "$t" = TEMPLATE ] || grep -q "^\.It Xr $t 1" "$SPX_ROOT/man/specpipe.7.in"
    done
    grep -q "^## $(cat "$SPX_ROOT/VERSION") (" "$SPX_ROOT/CHANGELOG.md"
}
