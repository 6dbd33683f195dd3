// Command external-dns is external-dns as its authors publish it: their module, with the versions that it asks for, and nothing
// of ours but this file. Its flags are its own.
package main

import "sigs.k8s.io/external-dns/controller"

func main() {
	controller.Execute()
}
