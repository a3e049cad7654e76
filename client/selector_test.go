package client_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/client"
)

func TestSelector(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"app": "web", "tier": "front", "empty": "", "expr": "a=b", "path": "/x/y", "list": "a,b", "call": "f(x)"}
	tests := []struct {
		selector string
		want     bool
	}{
		{"", true},
		{"  ", true},
		{"app=web", true},
		{"app==web", true},
		{" app = web ", true},
		{"app=db", false},
		{"app!=db", true},
		{"app!=web", false},
		{"none!=x", true},
		{"app in (db, web)", true},
		{"app in (db)", false},
		{"app in (db),tier=front", false},
		{"app notin (db,cache)", true},
		{"app notin (web)", false},
		{"none notin (web)", true},
		{"app", true},
		{"none", false},
		{"!none", true},
		{"!app", false},
		{"empty=", true},
		{"app=", false},
		{"none=", false},
		{"app=web,tier=front", true},
		{"app=web,tier=back", false},
		{"expr=a=b", true},
		{"path=/x/y", true},
		{`list=a\,b`, true},
		{"call=f(x),app=web", true},
		{"empty in (,x)", true},
	}
	for _, tt := range tests {
		t.Run(tt.selector, func(t *testing.T) {
			t.Parallel()
			s, err := client.ParseSelector(tt.selector)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Matches(labels); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}

func TestSelectorMistakes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"=x", "a=b,", ",", "!", "a in (b", "a b=c", "!=x", "a(b)", "a>1"} {
		_, err := client.ParseSelector(text)
		var usage *client.SyntaxError
		if !errors.As(err, &usage) || usage.Hint() == "" {
			t.Errorf("%q: got %v, want a SyntaxError with a hint", text, err)
		}
	}
}

func TestSelectorEqualities(t *testing.T) {
	t.Parallel()
	s, err := client.ParseSelector("a=1,b==2,c!=3,d in (4),e")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2", "d": "4"}, s.Equalities()); diff != "" {
		t.Error(diff)
	}
}
