package auth

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzCredentials checks that user and password survive plain text, base64 and a file. Errors must not contain invalid
// credentials.
func FuzzCredentials(f *testing.F) {
	for _, pair := range [][2]string{{"me", "secret"}, {"me", ""}, {"", "x"}, {"a:b", "c"}, {"me", "a:b"}, {"me", "é\x00"}, {"\xff", "x"}} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, user, password string) {
		text := user + ":" + password
		a, complete, err := ParseCreds(text)
		if err == nil && (!complete || a.GetUsername()+":"+a.GetPassword() != text) {
			t.Errorf("%q is %v, %t", text, a, complete)
		}
		for _, code := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
			b, err := ParseBase64(code.EncodeToString([]byte(text)))
			if err == nil && b.GetUsername()+":"+b.GetPassword() != strings.TrimRight(text, "\x00") {
				t.Errorf("%q in base64 is %v", text, b)
			}
		}
		if _, err := ParseBase64(text); err != nil && len(password) > 8 && strings.Contains(err.Error(), password) {
			t.Errorf("the error shows %q: %v", password, err)
		}
	})
}

func FuzzAuthFile(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", "[]", `{"auths":{"reg.example":{"auth":"bWU6c2VjcmV0"}}}`, `{"auths":{"https://reg.example/v1/":{"username":"me","password":"x"}}}`,
		`{"auths":{"reg.example/a":{"identitytoken":"x"},"":{}}}`, `{"auths":{"reg.example":{"auth":"!"}}}`, `{"auths":null,"HttpHeaders":{"a":"b"}}`, `{"auths":{"reg.example":null}}`,
	} {
		f.Add(text)
	}
	path := filepath.Join(f.TempDir(), "config.json")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(strings.ToLower(text), "cred") { // the fuzzer must not run helper programs
			return
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := Lookup(t.Context(), "reg.example/a/b:1", Options{AuthFile: path})
		if err != nil && !strings.Contains(err.Error(), path) && !strings.Contains(err.Error(), "reg.example") {
			t.Errorf("an error that names neither the file nor the registry: %v", err)
		}
		if err == nil && a != nil && a.GetUsername()+a.GetPassword()+a.GetAuth()+a.GetIdentityToken()+a.GetRegistryToken() == "" {
			t.Error("got credentials with nothing in them")
		}
	})
}
