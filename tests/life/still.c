/* SPDX-License-Identifier: Apache-2.0 */
/* A static program: nothing can be loaded into it. */
#include <stdio.h>

int main(void)
{
	return puts("still here") < 0;
}
