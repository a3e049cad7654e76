# bash completion for NAME: eval "$(NAME completion bash)"
_crishim() {
	local line=${COMP_LINE:0:COMP_POINT} IFS=$' \t\n' cur prefix reply
	local -a words
	read -ra words <<<"$line"
	case $line in *[[:space:]]) words+=("") ;; esac
	cur=${words[${#words[@]}-1]}
	# bash takes words apart at colons and equals signs and replaces only what
	# follows the last one.
	prefix=
	if [[ $cur == *[:=]* ]]; then prefix=${cur%"${cur##*[:=]}"}; fi
	COMPREPLY=()
	while IFS= read -r reply; do
		if [[ $reply == :files ]]; then
			compopt -o default 2>/dev/null
			continue
		fi
		reply=${reply%%$'\t'*}
		COMPREPLY+=("${reply#"$prefix"}")
	done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -F _crishim NAME
