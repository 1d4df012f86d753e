# Names that the source of the command line offers, for `starhop get` and `starhop ls`.
_starhop_names() {
    local -a names
    names=(${(f)"$(_call_program names starhop names ${(q)words[1,CURRENT]} 2>/dev/null)"})
    if (( $#names )); then compadd -a names; else _default; fi
}

