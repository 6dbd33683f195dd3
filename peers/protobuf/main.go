// Writes what the project needs to know of Kubernetes' protobuf, from Kubernetes' own Go types and serializers:
//
//	schema [--check FILE]        the table of kinds, messages and fields: number, JSON name and type of each
//	vectors [--gz] [--check FILE] objects in protobuf with the JSON that the API server writes for them, one a line
//
// Both are deterministic: the same modules give the same bytes. Whatever the table has no words for ends the program.
package main

import (
	"bytes"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "protobuf:", err)
		os.Exit(1)
	}
}

// What the command line asks for.
type options struct {
	command string
	gz      bool
	check   string
}

func run(args []string) error {
	opts, err := parse(args)
	if err != nil {
		return err
	}
	var output []byte
	switch opts.command {
	case "schema":
		output, err = schemaText()
	case "vectors":
		output, err = vectorsText(opts.gz)
	default:
		err = fmt.Errorf("%q is neither schema nor vectors", opts.command)
	}
	if err != nil {
		return err
	}
	if opts.check != "" {
		return check(output, opts.check)
	}
	_, err = os.Stdout.Write(output)
	return err
}

func parse(args []string) (options, error) {
	opts := options{}
	for len(args) > 0 {
		switch {
		case args[0] == "--gz":
			opts.gz = true
		case args[0] == "--check" && len(args) > 1:
			opts.check = args[1]
			args = args[1:]
		case opts.command == "":
			opts.command = args[0]
		default:
			return opts, fmt.Errorf("unexpected argument %q", args[0])
		}
		args = args[1:]
	}
	return opts, nil
}

func check(output []byte, path string) error {
	committed, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(committed, output) {
		return fmt.Errorf("%s differs from what this program writes: write it anew", path)
	}
	return nil
}
