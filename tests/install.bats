# What `make install` puts where, and that nothing stays after `make uninstall`.

load common

house() {
    # A sanitizer's build knows nothing of its flags here and would be made anew without them.
    [ -z "${ASAN_OPTIONS:-}${UBSAN_OPTIONS:-}" ] || skip "under a sanitizer"
    make -s --no-print-directory -C "$SPX_ROOT" BUILD="$SPX_BUILD" PREFIX=/opt/spx DESTDIR="$PWD/root" "$@"
}

@test "install: programs, pages, schemas, completion; uninstall leaves nothing" {
    local t
    house install
    for t in $(programs); do
        [ -x "root/opt/spx/bin/$t" ]
        [ -s "root/opt/spx/share/man/man1/$t.1" ]
        [ -e "root/opt/spx/share/bash-completion/completions/$t" ]
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
    sed -n 's|^\.It Pa /usr/local/|root/opt/spx/|p' "$SPX_ROOT/man/specpipe-night.7.in" >files
    grep -q night/page.sh files
    for t in $(<files); do
        [ "${t%.sh}" = "$t" ] || [ -x "$t" ]
        [ -s "$t" ]
    done
    [ "$(root/opt/spx/bin/h5check --version)" = "h5check (specpipe) $(cat "$SPX_ROOT/VERSION")" ]
    house uninstall
    [ -z "$(find root ! -type d)" ]
}

@test "plain make builds what is installed" {
    [ "$(make -npq -C "$SPX_ROOT" NVCC= | sed -n 's/^.DEFAULT_GOAL := //p')" = all ]
}

@test "completion offers a program's options, and what those that are choices may be" {
    house install
    # complete WORD...: what is offered for the last one
    complete_words() {
        run bash -c 'PATH=$PWD/root/opt/spx/bin:$PATH
            . root/opt/spx/share/bash-completion/completions/rvs-fit
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _specpipe "$1"
            echo "${COMPREPLY[@]}"' bash "$@"
        [ "$status" -eq 0 ]
    }
    complete_words rvs-fit --templ
    [ "$output" = --templates ]
    complete_words rvs-fit --interpolator ''
    [ "$output" = 'auto grid cubic simplex nn' ]
    complete_words rvs-fit --interpolator c
    [ "$output" = cubic ]
    complete_words rvs-fit --interpolator = # bash's words of --interpolator=
    [ "$output" = 'auto grid cubic simplex nn' ]
    complete_words rvs-fit --interpolator = s
    [ "$output" = simplex ]
    complete_words h5reduce -p m
    [ "$output" = 'minimum maximum mean median' ]
    # file names: nothing is offered, so that bash does it
    complete_words rvs-fit --templates t
    [ "$output" = '' ]
    # behind an option that is no choice
    complete_words rvs-fit --rotation --inter
    [ "$output" = --interpolator ]
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
