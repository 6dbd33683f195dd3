// Writes what a kube-apiserver's own code makes of objects that are printed as tables, one JSON object a line: the rows of
// the built-in kinds (objects.yaml), and the cells that printer columns of custom resources give for many JSON paths.
//
//	go run . builtin < objects.yaml > builtin.jsonl
//	go run . jsonpath > jsonpath.jsonl
//	go run . openapi < DOCUMENT.json             for the test of the test server's openapi/wire.rs
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	programs := map[string]func(emit func(any)) error{"builtin": builtin, "jsonpath": jsonPaths, "openapi": openAPI}
	if len(os.Args) != 2 || programs[os.Args[1]] == nil {
		fail(fmt.Errorf("usage: tables builtin|jsonpath|openapi"))
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	emit := func(line any) {
		if err := out.Encode(line); err != nil {
			fail(err)
		}
	}
	if err := programs[os.Args[1]](emit); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
