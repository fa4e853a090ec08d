# --hook: Python functions that look at, and change, the arrays of a running program. That nothing is copied is checked by
# tests/kernels/test_hook.c too, on the CPU and on a GPU.

load common

# values FILE DATASET: its numbers, one a line.
values() {
    h5dump -A 0 -y -w 1 -m %.12g -d "$2" "$1" | sed -n 's/^ *\(-\{0,1\}[0-9][^ ,]*\),\{0,1\}$/\1/p'
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return
    cat >h.py <<'END'
import numpy

rows, addresses = [], set()


def hook(step):
    u = step["u"]
    assert type(u) is numpy.ndarray and u.dtype == float and u.shape == (256,)
    assert not u.flags.writeable and not u.flags.owndata
    assert (step.stage, step.device, step.stream) == ("burgers", "cpu", 0)
    assert step.last == (step.number == step.total) and abs(step.time - 0.001 * step.number) < 1e-12
    rows.append(u.copy())
    addresses.add(u.__array_interface__["data"][0])
    return {"number": step.number, "u": u}


def finish():
    assert len(addresses) == 2, addresses
    return {"rows": numpy.array(rows), "flags": numpy.array([[True, False]]), "u2": rows[-1].astype(numpy.float32)}
END
    cat >others.py <<'END'
import sys


def half(step):
    step["u"][:] *= 0.5


half.writable = True


def write(step):
    step["u"][0] = 1


def spoil(step):
    if step.number == 3:
        step["u"][0] = float("nan")


spoil.writable = True


def fail(step):
    if step.number == 5:
        raise ValueError("five")


def leave(step):
    sys.exit(0)


def say(step):
    if step.last:
        print("said", step.total)


def name(step):
    return {"a/b": 1}


def complex_number(step):
    return {"z": 1j}


def several(step):
    return [1, 2]


value = 3
END
}

@test "a hook sees each step where it is, and what it returns is in the product" {
    need_hook
    burgers -q --steps 50 --hook h.py -o b.h5
    h5check b.h5
    [ "$(values b.h5 /insitu/rows | cksum)" = "$(values b.h5 /burgers/snapshot | cksum)" ]
    [ "$(values b.h5 /insitu/number)" = 50 ]
    [ "$(values b.h5 /insitu/flags | tr '\n' ' ')" = "1 0 " ]
    h5ls b.h5/insitu | grep -q '^u2 *Dataset {256}'
    h5dump -H -d /insitu/u2 b.h5 | grep -q H5T_IEEE_F32LE
    h5dump -y -d /provenance/000 b.h5 | grep -q 'option: hook=h.py'
    h5dump -y -d /provenance/000 b.h5 | grep -q 'input: h.py ('
    # one that only looks changes nothing
    burgers -q --steps 50 -o plain.h5
    h5diff b.h5 plain.h5 /burgers
}

@test "snapshots gathered by a hook: their decomposition is that of h5svd" {
    need_hook
    burgers -q --hook "$SPX_ROOT/share/examples/burgers_svd.py" -o b.h5
    h5check b.h5
    h5svd -q -k 10 b.h5 -o svd.h5
    paste <(values b.h5 /insitu/s) <(values svd.h5 /svd/s) |
        awk '{ n++; if ($1 - $2 > 1e-9 || $2 - $1 > 1e-9) bad = 1 } END { exit bad || n != 10 }'
    paste <(values b.h5 /insitu/energy) <(values svd.h5 /svd/energy) |
        awk '{ n++; if ($1 - $2 > 1e-9 || $2 - $1 > 1e-9) bad = 1 } END { exit bad || n != 10 }'
}

@test "a hook that asks for it changes the state" {
    need_hook
    burgers -q --steps 3 --modes 0 --hook others.py:half -o b.h5
    # the sine's largest value, halved in each step, and little changed by the equation
    values b.h5 '/burgers/snapshot[0,64;;3,1]' | awk '{ x = $1 * 2 ^ NR - 1; if (x > 1e-4 || x < -1e-4) exit 1 }'
    fails_with 6 '*read-only*' burgers --hook others.py:write -o out.h5
    fails_with 6 '*--hook others.py: *not finite at step 3*' burgers --hook others.py:spoil -o out.h5
}

@test "an exception stops the run with its traceback and exit status 6; nothing is written" {
    need_hook
    fails_with 6 '*Traceback*others.py*in fail*ValueError: five*burgers: --hook others.py: ValueError: five*' \
        burgers --hook others.py:fail -o out.h5
    fails_with 6 '*in leave*SystemExit*' burgers --hook others.py:leave -o out.h5
    fails_with 6 '*a/b*' burgers --hook others.py:name -o out.h5
    fails_with 6 '*complex*' burgers --hook others.py:complex_number -o out.h5
    fails_with 6 '*dict*' burgers --hook others.py:several -o out.h5
    echo 'def hook(step) oops' >syntax.py
    fails_with 6 '*syntax.py*SyntaxError*' burgers --hook syntax.py -o out.h5
    printf 'def hook(step):\n    pass\ndef finish():\n    raise KeyError("end")\n' >end.py
    fails_with 6 '*in finish*KeyError*' burgers --hook end.py -o out.h5
}

@test "a hook finds the modules beside it, and is told which arrays there are" {
    need_hook
    mkdir folder
    echo 'factor = 3' >folder/beside.py
    printf 'import beside\ndef hook(step):\n    return {"factor": beside.factor}\ndef flux(step):\n    step["flux"]\n' \
        >folder/h.py
    burgers -q --steps 2 --hook folder/h.py -o b.h5
    [ "$(values b.h5 /insitu/factor)" = 3 ]
    fails_with 6 "*no array 'flux': there are u*" burgers -q --steps 2 --hook folder/h.py:flux -o out.h5
}

@test "what a hook prints is no part of the product" {
    need_hook
    burgers -q --hook others.py:say 2>err.txt | cat >b.h5
    h5check b.h5
    grep -qx 'said 2001' err.txt
}

@test "hooks that cannot be" {
    fails_with 2 '*--hook none.py*' burgers --hook none.py -o out.h5
    fails_with 2 '*no regular file*' burgers --hook . -o out.h5
    need_hook
    fails_with 2 "*no function 'other'*" burgers --hook others.py:other -o out.h5
    fails_with 2 "*no function 'value'*" burgers --hook others.py:value -o out.h5
    SPX_PYTHON=/nowhere/python3 fails_with 2 '*/nowhere/python3*SPX_PYTHON*' burgers --hook h.py -o out.h5
    SPX_PYTHON=true fails_with 2 '*SPX_PYTHON*' burgers --hook h.py -o out.h5
    SPX_BACKENDS=$PWD fails_with 2 '*no hooks*' burgers --hook h.py -o out.h5
    head -c 100 /dev/zero >zero.py
    fails_with 2 '*no text*' burgers --hook zero.py -o out.h5
    # a colon that begins no function's name belongs to the file's
    printf 'def hook(step):\n    pass\n' >'a:1.py'
    burgers -q --hook 'a:1.py' -o colon.h5
}

# For the two programs of the pipeline: the exposure of the manual's examples, made once.
exposure() {
    local data=$BATS_FILE_TMPDIR/exposure
    if [ ! -e "$data/spectra.h5" ]; then
        mkdir -p "$data"
        (cd "$data" && bash "$SPX_ROOT/tests/examples.sh") >&2
    fi
    cp "$data"/{image-r0,spectra,templates}.h5 .
}

@test "specx-extract: a hook sees the frame, and may change it" {
    need_hook
    exposure
    cat >frame.py <<'END'
import numpy

shapes = {"flux": 2, "ivar": 2, "mask": 2, "resolution": 3, "chi2pix": 2, "pixmask_fraction": 2, "wavelength": 1,
          "fiber": 1}


def hook(step):
    assert step.stage == "extract" and step.number == 1 and not step.last
    assert {name: a.ndim for name, a in step.arrays.items()} == shapes
    assert step["flux"].shape == (8, step["wavelength"].size) and not step["flux"].flags.writeable
    return {"flux": step["flux"], "fiber": step["fiber"], "diagonals": step["resolution"].shape[1]}


def clip(step):
    assert not step["chi2pix"].flags.writeable
    step["flux"][3] = 0
    step["ivar"][3] = 0
    step["mask"][3] |= 2


clip.writable = True


def spoil(step):
    step["flux"][0, 0] = numpy.nan


spoil.writable = True
END
    specx-extract -q --precision double --wavelength 6400,6600,0.8 --hook frame.py image-r0.h5 -o f.h5
    h5check f.h5
    [ "$(values f.h5 /insitu/flux | cksum)" = "$(values f.h5 /frame/flux | cksum)" ]
    [ "$(values f.h5 /insitu/diagonals)" = "$(h5ls f.h5/frame/resolution | sed 's/.*{[0-9]*, \([0-9]*\),.*/\1/')" ]
    specx-extract -q --wavelength 6400,6600,0.8 --hook frame.py:clip image-r0.h5 -o c.h5
    h5check c.h5
    [ "$(values c.h5 '/frame/ivar[3,0;;1,200]' | sort -u)" = 0 ]
    [ "$(values c.h5 '/frame/ivar[4,0;;1,200]' | sort -u | wc -l)" -gt 100 ]
    fails_with 6 '*not finite*' specx-extract -q --wavelength 6400,6600,0.8 --hook frame.py:spoil image-r0.h5 -o out.h5
}

@test "rvs-fit: a hook sees residuals and parameters of each batch" {
    need_hook
    exposure
    cat >fit.py <<'END'
import numpy

vrad, residual = [], []


def hook(step):
    assert step.stage == "rvfit" and step.device == "cpu"
    n = step["vrad"].size
    assert step["par"].shape[0] == n == step["row"].size and not step["vrad"].flags.writeable
    for arm in "brz":
        assert step[f"residual_{arm}"].shape == (n, step[f"wavelength_{arm}"].size)
    vrad.append(step["vrad"].copy())
    residual.append(step["residual_r"].copy())


def finish():
    return {"vrad": numpy.concatenate(vrad), "residual_r": numpy.concatenate(residual)}
END
    rvs-fit -q --templates templates.h5 --hook fit.py spectra.h5 -o rv.h5
    h5check rv.h5
    h5table --csv -c VRAD rv.h5 | tail -n +2 | awk '{ printf "%.6g\n", $1 }' >table.txt
    values rv.h5 /insitu/vrad | awk '{ printf "%.6g\n", $1 }' | diff - table.txt
    # the residuals of good fits are noise
    values rv.h5 /insitu/residual_r | awk '$1 != 0 { n++; s += $1 * $1 } END { s /= n; exit !(s > 0.7 && s < 1.4) }'
    # models are for the hook alone when they are not wanted
    rvs-fit -q --no-model --templates templates.h5 --hook fit.py spectra.h5 -o without.h5
    h5diff rv.h5 without.h5 /insitu
    run ! h5ls without.h5/rvfit/r
}

@test "rvs-fit: an outlier score finds the spectrum that is unlike the others" {
    need_hook
    exposure
    # an emission line that no template knows, in the third star
    local i nwave
    nwave=$(h5ls spectra.h5/spectra/r/flux | sed 's/.*, \([0-9]*\)}.*/\1/')
    for i in 0 1 2 3 4; do
        h5edit spectra.h5 set /spectra/r/flux $((2 * nwave + 120 + i)) "$(values spectra.h5 /spectra/r/flux |
            awk -v i="$i" 'NR == 1 { print 3 * $1 + 100 * i }')"
    done
    rvs-fit -q --templates templates.h5 --hook "$SPX_ROOT/share/examples/rvs_outliers.py" spectra.h5 -o rv.h5
    h5check rv.h5
    values rv.h5 /insitu/outlier_score >scores.txt
    [ "$(wc -l <scores.txt)" -eq 6 ]
    [ "$(sort -g scores.txt | tail -n 1)" = "$(sed -n 3p scores.txt)" ]
    awk 'NR == 3 ? $1 < 5 : !($1 > 0.3 && $1 < 2) { exit 1 }' scores.txt
}

@test "the outlier score of one odd spectrum among many, which must not become one of the directions" {
    need_hook
    "$SPX_PYTHON" - "$SPX_ROOT/share/examples/rvs_outliers.py" <<'END'
import runpy
import sys

import numpy

example = runpy.run_path(sys.argv[1])
random = numpy.random.default_rng(5)
shared = numpy.sin(numpy.arange(480) / 30)


class Step:
    device = "cpu"
    arrays = {"residual_r": (random.normal(size=(80, 480)) + random.normal(size=(80, 1)) * shared).astype("f4")}

    def __getitem__(self, name):
        return self.arrays[name]


Step.arrays["residual_r"][2, 200:206] += 60
example["hook"](Step())
score = example["finish"]()["outlier_score"]
assert score.shape == (80,) and score.argmax() == 2 and score[2] > 5, score
assert 0.7 < numpy.median(score) < 1.2 and numpy.sort(score)[-2] < 1.6, score
END
}

@test "specx-extract: in a queue, what a hook returns belongs to the frame" {
    need_hook
    exposure
    cp image-r0.h5 second.h5
    cat >count.py <<'END'
calls = 0


def hook(step):
    global calls
    calls += 1
    assert step.number == calls


def finish():
    return {"calls": calls}
END
    mkdir frames
    specx-extract -q --wavelength 6400,6600,0.8 --hook count.py image-r0.h5 second.h5 -o frames/
    [ "$(values frames/image-r0.h5 /insitu/calls)" = 1 ]
    [ "$(values frames/second.h5 /insitu/calls)" = 2 ]
    h5dump -y -g /provenance frames/second.h5 >provenance
    grep -q 'input: count.py (' provenance
}

@test "specx-extract: in a queue, an exception stops it, and the hook is not called again" {
    need_hook
    exposure
    local n
    for n in 2 3 4; do cp image-r0.h5 image$n.h5; done
    cat >fail.py <<'END'
def hook(step):
    print("called", step.number)
    if step.number == 2:
        raise ValueError("the second")
END
    mkdir frames
    run --separate-stderr specx-extract -q --wavelength 6400,6600,0.8 --hook fail.py image-r0.h5 image{2,3,4}.h5 -o frames/
    [ "$status" -eq 6 ]
    # run sets it
    # shellcheck disable=SC2154
    [[ $stderr == *'called 2'* && $stderr != *'called 3'* ]]
    [[ $stderr == *'image2.h5: --hook fail.py: ValueError: the second'*'stopped with 1 frames done'* ]]
    [ "$(ls -A frames)" = image-r0.h5 ]
}
