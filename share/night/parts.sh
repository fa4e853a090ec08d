#!/usr/bin/env bash
# parts.sh slurm|hosts RULES NIGHT OPTIONS MOST|HOSTS < PARTS: prints a script that makes a night on several machines: the
# cameras, the petals, the groups, and then what is left and the page. Each kind begins when the one before has ended,
# however that was: what could not be made has a record, and what is absent is flagged.
#
#     slurm  submits arrays of at most MOST elements, of which each makes every MOST-th part, with OPTIONS of sbatch
#     hosts  runs parts by GNU Parallel on the machines of the file HOSTS, with OPTIONS of parallel, and the rest here
#
# A part that is begun again finds what is done (job.sh). RULES is the file of the rules; the environment: OUT, and MAKEFLAGS
# with the settings of the command line.
set -euo pipefail
way=$1 rules=$2 night=$3 options=$4
parts=$(tr ' ' '\n')
make="make -s -f $(printf %q "$rules") NIGHT=$(printf %q "$night")"
settings=
[[ " ${MAKEFLAGS:-}" != *' -- '* ]] || settings="-- ${MAKEFLAGS#*-- }"

cat <<END
#!/usr/bin/env bash
set -euo pipefail
cd $(printf %q "$PWD")
unset MAKELEVEL MFLAGS
export MAKEFLAGS=$(printf %q "$settings")
mkdir -p $OUT/log
END

# Stages: KIND PART...
after=
array() {
    local kind=$1 n=$(($# - 1 < most ? $# - 1 : most))
    cat <<END

$kind=\$(submit --job-name=$night-$kind --output=$OUT/log/slurm-%x-%a.out --array=0-$((n - 1))$after <<'JOB'
#!/usr/bin/env bash
parts=(${@:2})
status=0
for ((i = SLURM_ARRAY_TASK_ID; i < \${#parts[@]}; i += $n)); do
    $make PART=\${parts[i]} -j\$((SLURM_CPUS_ON_NODE < 3 ? SLURM_CPUS_ON_NODE : 3)) || status=\$?
done
exit \$status
JOB
)
echo "$kind: job \$$kind, $(($# - 1)) parts in $n elements"
END
    after=" --dependency=afterany:\$$kind"
}

# One processor a part, where nothing else is said: there are many.
run() {
    cat <<END

OMP_NUM_THREADS=\${OMP_NUM_THREADS:-1} parallel --sshloginfile $(printf %q "$hosts") --workdir "\$PWD" --retries 3 \\
    --env PATH --env MAKEFLAGS --env OMP_NUM_THREADS $options \\
    $make -j1 PART={} ::: ${@:2} || echo "some parts ended early: they are made again"
END
}

case $way in
slurm)
    most=$5 stage=array
    cat <<END
submit() {
    sbatch --parsable --requeue --open-mode=append $options "\$@"
}
END
    ;;
hosts) hosts=$5 stage=run ;;
esac
for kind in camera petal group; do
    mapfile -t list < <(grep "^$kind-" <<<"$parts")
    [ ${#list[@]} -eq 0 ] || $stage "$kind" "${list[@]}"
done
case $way in
slurm)
    cat <<END

night=\$(submit --job-name=$night --output=$OUT/log/slurm-%x.out$after <<'JOB'
#!/usr/bin/env bash
exec $make -j\$SLURM_CPUS_ON_NODE
JOB
)
echo "night: job \$night; what it says: $OUT/log/slurm-$night.out"
END
    ;;
hosts)
    cat <<END

exec $make -j\$(nproc)
END
    ;;
esac
