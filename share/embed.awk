# Turns schema texts into one C file: spx_schema_texts[] = { {name, text}, ..., {0} }, and storage for the lines that are
# items or columns (schemas/README).
BEGIN {
    print "/* made by share/embed.awk from schemas/: do not edit */"
    print "#include \"h5/schema.h\""
    print "const spx_schema_text spx_schema_texts[] = {"
}
FNR == 1 {
    if (open)
        print "    \"\"},"
    name = FILENAME
    sub(/^.*\//, "", name)
    sub(/\.schema$/, "", name)
    printf "    {\"%s\",\n", name
    open = 1
}
$1 ~ /^(group|data|table)$/ { nitem++ }
$1 == "col" { ncolumn++ }
{
    gsub(/\\/, "\\\\")
    gsub(/"/, "\\\"")
    printf "     \"%s\\n\"\n", $0
}
END {
    if (open)
        print "    \"\"},"
    print "    {0, 0}};"
    printf "spx_item spx_schema_storage[%d];\nconst size_t spx_schema_nstorage = %d;\n", nitem, nitem
    printf "spx_schema_column spx_schema_column_storage[%d];\nconst size_t spx_schema_ncolumn_storage = %d;\n", ncolumn, ncolumn
}
