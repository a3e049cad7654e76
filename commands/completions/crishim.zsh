#compdef NAME
# zsh completion for NAME: source <(NAME completion zsh)
_crishim() {
	local reply value text
	local -a replies found
	replies=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	for reply in $replies; do
		if [[ $reply == :files ]]; then
			_files
			continue
		fi
		value=${reply%%$'\t'*}
		text=
		[[ $reply == *$'\t'* ]] && text=":${reply#*$'\t'}"
		[[ -n $value ]] && found+=("${value//:/\\:}$text")
	done
	_describe NAME found
}
compdef _crishim NAME
