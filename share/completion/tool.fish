# Completion of @TOOL@ in fish: options, and what may follow them, come from the program itself
# (--help=completion, libcommon/app/opt.h); names of tables and columns from the file on the command line.

# Names in the last file on the command line: of tables, or of the columns of a table.
function __specpipe_names -a what
    set -l words (commandline -op)
    set -l table
    set -l file
    for w in $words[2..-1]
        if test -f $w
            set file $w
        else if string match -q '/*' -- $w
            set table $w
        end
    end
    test -n "$file"; or return
    set -l names ($words[1] --list $file 2>/dev/null | awk -v what=$what -v table="$table" '
        NR == 1 { next }
        what == "tables" { print $1; next }
        table == "" && !n++ || table == $1 { gsub(",", "\n", $3); print $3 }')
    # behind a comma, the next column
    printf '%s\n' (string match -r '^.*,' -- (commandline -ct))$names $names
end

@TOOL@ --help=completion 2>/dev/null | while read -l -d \t name letter value offers text
    set -l option -c @TOOL@ -l (string sub -s 3 -- $name) -d $text
    test $letter = -; or set -a option -s (string sub -s 2 -- $letter)
    if test $value != -
        switch $offers
            case @files
                set -a option -r -F
            case @folders
                set -a option -x -a '(__fish_complete_directories (commandline -ct))'
            case @columns @tables
                set -a option -x -a "(__specpipe_names "(string sub -s 2 -- $offers)")"
            case -
                set -a option -x
            case '*'
                set -a option -x -a $offers
        end
    end
    complete $option
end
