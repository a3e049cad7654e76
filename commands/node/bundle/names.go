package bundle

import (
	"slices"
	"strings"
	"unicode"

	"github.com/crishim/crishim/internal/lazyregexp"
)

// secretWords are words that the name of a secret has, alone or as two words in a row.
var secretWords = []string{
	"password", "passwords", "passwd", "passphrase", "pass", "pwd", "secret", "secrets", "token", "tokens", "credential", "credentials", "creds",
	"auth", "auths", "authorization", "bearer", "jwt", "cookie", "cookies", "dsn", "signature", "sig", "apikey", "accesskey", "secretkey", "privatekey",
	"authkey", "psk", "clientsecret", "sessionid", "htpasswd", "dockerconfigjson", "dockercfg", "kubeconfig", "keytab", "sas", "pw", "bindpw", "authtok", "hmac",
	"api key", "access key", "secret key", "private key", "account key", "auth key", "signing key", "encryption key", "encrypt key", "master key", "session key", "shared key",
	"ssh key", "tls key", "license key", "deploy key", "storage key", "host key", "key data", "connection string", "conn str", "database url", "db url", "redis url", "webhook url",
}

// harmlessEnds are the last words of names of what belongs to a secret and is none: tokenPath, secretName.
var harmlessEnds = []string{
	"name", "names", "namespace", "path", "paths", "file", "files", "filename", "dir", "directory", "ref", "refs", "type", "kind", "mode", "method", "methods", "enabled", "disabled",
	"timeout", "ttl", "expiry", "expires", "expiration", "expired", "seconds", "duration", "length", "size", "count", "limit", "policy", "provider", "providers", "plugin", "helper",
	"issuer", "realm", "scheme", "schemes", "server", "endpoint", "host", "port", "version", "readonly", "available",
}

// words splits a name as people write them: camelCase, snake_case, kebab-case, dotted.
func words(name string) []string {
	var all []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			all = append(all, strings.ToLower(string(word)))
			word = nil
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		upper := unicode.IsUpper(r)
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
			continue
		case upper && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsUpper(runes[i-1]) && unicode.IsLower(runes[i+1])):
			end()
		}
		word = append(word, r)
	}
	end()
	return all
}

// isSecretName reports whether a field, a variable or a flag of this name holds a secret.
func isSecretName(name string) bool {
	if len(name) > 256 || name == "PWD" || name == "OLDPWD" {
		return false
	}
	all := words(name)
	if len(all) == 0 || slices.Contains(harmlessEnds, all[len(all)-1]) {
		return false
	}
	for i, w := range all {
		if slices.Contains(secretWords, strings.TrimRight(w, "0123456789")) {
			return true
		}
		if i > 0 && slices.Contains(secretWords, all[i-1]+" "+w) {
			return true
		}
		// One word, as in PGPASSWORD, DBPASS and mytoken.
		for _, end := range []string{"password", "passwd", "passphrase", "secret", "token", "apikey", "pwd", "pass"} {
			if strings.HasSuffix(w, end) && w != "bypass" && w != "compass" {
				return true
			}
		}
	}
	return false
}

// isPasswordName reports whether a name is that of a password, behind which no sentence goes on.
func isPasswordName(name string) bool {
	all := words(name)
	return len(all) > 0 && slices.ContainsFunc([]string{"password", "passwd", "passphrase", "pwd"}, func(end string) bool { return strings.HasSuffix(all[len(all)-1], end) })
}

// plainVariables are environment variables whose values are the same on many machines. They are removed like all
// others, but not looked for elsewhere: a path or a language is in many places.
var plainVariables = lazyregexp.New(`^(PATH|HOME|HOSTNAME|TERM|LANG|LANGUAGE|LC_\w+|PWD|SHLVL|SHELL|TZ|container|DEBIAN_FRONTEND|KUBERNETES_\w+|\w+_SERVICE_(HOST|PORT)(_\w+)?|\w+_PORT(_\d+_(TCP|UDP)(_\w+)?)?|\w*VERSION|(GO|JAVA|PYTHON|NODE)_?(PATH|HOME|ROOT)|(NODE|POD)_(NAME|NAMESPACE|IP)|HOST_IP)$`)

// plainValue matches values that say nothing: numbers, versions, addresses, lists of paths.
var plainValue = lazyregexp.New(`^(?:-?[\d.:,%]+[a-zA-Z]{0,2}|v?\d+(?:\.\d+)+(?:[-+~].*)?|(?:/[\w.@+-]*)+(?::(?:/[\w.@+-]*)+)*)$`)

// commonWords are values of secrets that are in use everywhere, so that to look for them would remove half a file.
var commonWords = []string{
	"", "true", "false", "yes", "no", "on", "off", "none", "null", "nil", "empty", "default", "root", "admin", "user", "test", "localhost", "enabled", "disabled", "basic", "bearer",
	"docker", "runtime", "containerd", "kubernetes", "always", "never", "auto", "info", "debug", "warn", "error", "string", "required", "optional", "unix", "http", "https", removed,
}

// isTrivial reports whether a value is not worth removing: a switch, or nothing.
func isTrivial(value string) bool {
	switch strings.ToLower(strings.Trim(value, `"' `)) {
	case "", "true", "false", "yes", "no", "on", "off", "null", "nil", "none", "{}", "[]", "<nil>", "0", "1", removed:
		return true
	}
	return false
}
