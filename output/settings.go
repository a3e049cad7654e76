package output

import "io"

// Setting is one key of the config file.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Set says that the file has the key; else the value is the default.
	Set bool `json:"set"`
}

var settingColumns = []column[Setting]{
	{name: "KEY", value: func(s Setting, _ Options) string { return s.Key }},
	{name: "VALUE", value: func(s Setting, _ Options) string { return s.Value }},
	{name: "FROM", value: func(s Setting, _ Options) string {
		if s.Set {
			return "file"
		}
		return "default"
	}},
}

// Settings writes the config file's keys and values.
func Settings(w io.Writer, settings []Setting, o Options) error {
	return rows(w, "settings", settings, settingColumns, func(s Setting) string { return s.Key }, o)
}
