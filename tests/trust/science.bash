# shellcheck shell=bash
# Wrong science input: files that are whole, and cannot be right. A program refuses them, with one line, or leaves a flag
# in the product: the attribute implausible of a frame, or a bit of RVS_WARN of every star.
# shellcheck disable=SC2154

# science FILE EDIT COMMAND...: EDIT, commands of h5edit with semicolons between, makes in.h5 of FILE in $d; the product of
# COMMAND is out.h5.
science() {
    local file=$1 edit=$2 part status=0
    shift 2
    turn || return 0
    rm -f in.h5 out.h5
    cp "$d/$file" in.h5
    while read -r -d ';' part; do
        # words on purpose
        # shellcheck disable=SC2086
        h5edit in.h5 $part || {
            wrong "h5edit $file $part: fails"
            return
        }
    done <<<"$edit;"
    timeout -k 5 60 "$@" -o out.h5 >stdout 2>stderr || status=$?
    case $status in
    [123]) [ ! -e out.h5 ] && [ -s stderr ] && ok && return ;;
    0) is_flagged && ok && return ;;
    esac
    wrong "cp $file in.h5; h5edit in.h5 $edit; $*: status $status, no flag: $(head -c 300 stderr)"
}

is_flagged() {
    if h5ls out.h5 | grep -q '^frame '; then
        h5dump -a /frame/implausible out.h5 >/dev/null 2>&1
    elif h5ls out.h5 | grep -q '^rvfit '; then
        h5table --csv -c RVS_WARN out.h5 | awk 'NR > 1 && $1 == 0 { good = 1 } END { exit good || NR < 2 }'
    else # spectra: valid, and their values finite
        h5check out.h5
    fi
}

class science 1 "wrong images, PSFs, spectra: variances, signs, units, cameras, copies"
class_science() {
    local edit
    local extract=(specx-extract -j 1 --wavelength '6420,6580,0.8' in.h5)
    local fit=(rvs-fit -j 1 --templates "$d/templates.h5" in.h5)
    for edit in 'scale /image/ivar 1e10' 'scale /image/ivar 0.1' 'scale /image/ivar 10' 'fill /image/ivar 1e30' \
        'fill /image/ivar 3e38' 'fill /image/ivar 0' 'fill /image/ivar -1' 'fill /image/ivar nan' \
        'scale /image/data -1' 'scale /image/data 0.5' 'scale /image/data 10' 'fill /image/data 0' \
        'fill /image/data nan' 'fill /image/data 1e30' 'fill /image/mask 1' 'fill /psf/xtrace 0' \
        'fill /psf/xtrace nan' 'fill /psf/ytrace 0' 'fill /psf/ytrace nan' 'fill /psf/coeff 0' 'fill /psf/coeff nan' \
        'attr /psf camera b0' 'attr /image camera z0'; do
        science image-r0.h5 "$edit" "${extract[@]}"
    done
    for edit in 'scale /frame/ivar 1e10' 'scale /frame/ivar 0.04' 'fill /frame/ivar 0' 'fill /frame/ivar nan' \
        'fill /frame/ivar 1e38' 'scale /frame/flux -1' 'fill /frame/flux 0' 'fill /frame/flux nan' \
        'fill /frame/mask 1' 'scale /frame/wavelength 0.1' 'scale /frame/wavelength 1.2' \
        'attr /frame/wavelength medium nonsense' 'attr /frame/wavelength frame nonsense' \
        'attr /frame/wavelength units furlong' 'delete /frame/mask'; do
        science frame-r0.h5 "$edit" "${fit[@]}"
    done
    science frame-r0.h5 'attr /frame camera r0' h5merge --by rows in.h5 "$d/frame-r0.h5"
    for edit in 'fill /frame/flux nan' 'set /frame/ivar 7 inf' 'set /frame/ivar 7 -1' 'set /frame/resolution 7 nan'; do
        science frame-r0.h5 "$edit" h5merge in.h5 "$d/frame-b0.h5"
    done
    science frame-r0.h5 'attr /frame camera r0' rvs-fit -j 1 --joint all --templates "$d/templates.h5" in.h5
}
